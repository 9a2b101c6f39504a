package sqlite

import (
	"fmt"
	"os"
	"time"
)

// SQLite carries the log of changes into the file once it has 16 MiB. Beyond that this store does so when nobody has written for
// quietFor, so that a quiet store is all in its file, and when slow readers have let the log grow to largeLog. Then the log is
// cut to nothing.
const (
	quietFor     = time.Second
	largeLog     = 64 << 20
	waitForReads = 50 * time.Millisecond // before a large log, as long as other calls are held up
	longestPause = time.Minute           // between two tries, while a reader needs the log
)

// A logbook is what the writer has seen of the log.
type logbook struct {
	size    int64
	changed time.Time     // as the file system has it
	since   time.Time     // since when it has been so, by the clock of this process
	again   time.Time     // when to try again
	pause   time.Duration // after the next try that fails
}

// tidy cuts the log if that is due and nobody is writing. What can not be done now is tried later: nothing depends on it.
func (w *writer) tidy() {
	log, err := os.Stat(w.place.real + "-wal")
	if err != nil || log.Size() == 0 {
		return
	}
	now := time.Now()
	if b := &w.log; b.size != log.Size() || !b.changed.Equal(log.ModTime()) {
		b.size, b.changed, b.since = log.Size(), log.ModTime(), now
		b.pause = quietFor
		if b.size <= largeLog {
			b.again = time.Time{}
		}
	}
	large := w.log.size > largeLog
	if now.Before(w.log.again) || !large && now.Sub(w.log.since) < quietFor {
		return
	}
	if ok, err := w.turns.try(); !ok && err == nil {
		return // whoever writes now is not quiet
	}
	defer w.turns.release()
	wait := time.Duration(0)
	if large {
		wait = waitForReads
	}
	if !w.cut(wait) {
		w.log.again = time.Now().Add(w.log.pause)
		w.log.pause = min(2*w.log.pause, longestPause)
	}
}

// cut carries the log into the file and cuts it to nothing, unless a reader still needs it after the wait.
func (w *writer) cut(wait time.Duration) bool {
	if w.connect() != nil || w.inPlace() != nil {
		return false
	}
	if _, err := w.kept.ExecContext(w.ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, wait.Milliseconds())); err != nil {
		return false
	}
	var busy, pages, done int
	err := w.kept.QueryRowContext(w.ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &done)
	if _, again := w.kept.ExecContext(w.ctx, `PRAGMA busy_timeout = 0`); again != nil {
		w.disconnect()
	}
	return err == nil && busy == 0
}
