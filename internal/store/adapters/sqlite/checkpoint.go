package sqlite

import (
	"fmt"
	"os"
	"time"
)

// SQLite checkpoints the WAL into the file at 16 MiB. This store also checkpoints it when nobody has written for quietFor, so
// that an idle store is all in its file, and when slow readers have let the WAL grow to largeLog. It then truncates the WAL.
const (
	quietFor     = time.Second
	largeLog     = 64 << 20
	waitForReads = 50 * time.Millisecond // how long truncating a large WAL may block other calls
	longestPause = time.Minute           // between two attempts, while a reader needs the WAL
)

// A logbook is what the writer has seen of the WAL.
type logbook struct {
	size    int64
	changed time.Time     // the modification time
	since   time.Time     // when this state was first seen, by the clock of this process
	again   time.Time     // when to try again
	pause   time.Duration // how long to wait after the next failed attempt
}

// tidy truncates the WAL if that is due and nobody is writing. If it fails, it tries again later: nothing depends on it.
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
		return // another process is writing
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

// cut checkpoints and truncates the WAL, unless a reader still needs it after the wait.
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
