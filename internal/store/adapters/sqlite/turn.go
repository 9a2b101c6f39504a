package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/gofrs/flock"

	"github.com/seed-ed332417/jq/internal/store"
)

// A turn is the lock on a file beside the store's, by which processes take turns in writing. The holder writes three lines into
// the lock file: the identity of the store's file, its epoch, and who the holder is, so that others can name the process they
// wait for.
type turn struct {
	path string
	real string // the store's file
	who  string // how this process calls itself

	lock  *flock.Flock
	notes *os.File    // the lock file, for the lines; nil if it cannot be written
	inode os.FileInfo // of notes
	known string      // the line about the store's file, as last written
	held  []byte      // the line about this process, without the time
	short atomic.Bool // this process has the turn by a lock on notes
}

// The places of the lines. Windows prevents others from reading locked bytes, so the first byte is left for the lock. The lines
// have a fixed length, so that each is written at once.
const (
	fileLineAt   = 1
	fileLineLen  = 127
	holdLineAt   = fileLineAt + fileLineLen
	holdLineLen  = 384
	epochLineAt  = holdLineAt + holdLineLen
	epochLineLen = 32
	fileLineMark = "file "
	holdLineMark = "held "
	epochMark    = "epoch "
	anotherMark  = " another" // follows the identity of a file that replaced the store's, until the epoch is raised
)

func newTurn(actual, name string) *turn {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(actual); err == nil { // whoever may use the file may take turns
		mode = info.Mode().Perm()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	path := actual + ".lock"
	who := name + " on " + host
	return &turn{
		path: path, real: actual, who: who, lock: flock.New(path, flock.SetPermissions(mode)),
		held: lineOf(holdLineLen, fmt.Sprintf("%s%016d %d %s", holdLineMark, 0, os.Getpid(), who)),
	}
}

// try takes the turn if it is free. After the first turn, the lock file is open already, so it only has to be locked.
func (t *turn) try() (bool, error) {
	if t.notes != nil {
		ok, err := tryLock(t.notes)
		now, missing := os.Stat(t.path)
		switch {
		case ok && missing == nil && os.SameFile(now, t.inode):
			t.short.Store(true)
			t.write()
			return true, nil
		case ok: // somebody deleted the lock file
			_ = unlock(t.notes)
		case err == nil:
			return false, nil
		}
	}
	ok, err := t.lock.TryLock()
	if ok {
		t.sign()
	}
	return ok, err
}

// wait takes the turn, without a time limit.
func (t *turn) wait() error {
	err := t.lock.Lock()
	if err == nil {
		t.sign()
	}
	return err
}

// take waits for the turn for at most patience.
func (t *turn) take(ctx context.Context, patience time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ok, err := t.lock.TryLockContext(bounded, 5*time.Millisecond)
	switch {
	case ok:
		t.sign()
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w: %s", store.ErrUnavailable, t.blocker())
	default:
		return err
	}
}

func (t *turn) release() {
	if t.short.Swap(false) {
		_ = unlock(t.notes)
		return
	}
	_ = t.lock.Unlock()
}

func (t *turn) close() error {
	var err error
	if t.notes != nil {
		err = t.notes.Close()
		t.notes = nil
	}
	return errors.Join(t.lock.Close(), err)
}

// sign writes who has the turn. If it cannot, error messages say less, and nothing else changes.
func (t *turn) sign() {
	now, err := t.lock.Stat()
	if err != nil {
		return
	}
	if t.inode == nil || !os.SameFile(now, t.inode) { // the first turn, or somebody deleted the lock file and it was created again
		if t.notes != nil {
			_ = t.notes.Close()
		}
		t.notes, _ = os.OpenFile(t.path, os.O_RDWR, 0) // nil after an error
		t.inode = now
		if t.notes != nil && now.Size() == 0 {
			_ = likeThat(t.notes, t.real) // whoever may use the file may take turns, even if root took the first one
		}
		known := t.known
		t.known = ""
		if known != "" && t.note() == "" && t.stillAt(known) {
			_ = t.setFile(known)
		}
	}
	if t.notes != nil {
		t.write()
	}
}

// write writes the line about this process.
func (t *turn) write() {
	strconv.AppendInt(t.held[:len(holdLineMark)], time.Now().UnixMicro(), 10) // 16 digits until the year 2286
	_, _ = t.notes.WriteAt(t.held, holdLineAt)
}

// stillAt reports whether the note is about the file at the path. The lock file may have been replaced by that of another
// store.
func (t *turn) stillAt(note string) bool {
	identity, _, err := identify(t.real)
	return err == nil && identity == strings.TrimSuffix(note, anotherMark)
}

// lineOf pads or cuts the text to the length: a line that is written at once is read whole.
func lineOf(length int, text string) []byte {
	line := bytes.Repeat([]byte{' '}, length)
	copy(line[:length-1], strings.Map(visible, text))
	line[length-1] = '\n'
	return line
}

// visible replaces unprintable characters, so that a line stays one line.
func visible(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// setFile notes the identity of the store's file. The caller has the turn.
func (t *turn) setFile(note string) error {
	if note == "" || t.note() == note {
		t.known = note
		return nil
	}
	if t.notes == nil {
		return nil // a process that can write there will do it
	}
	if _, err := t.notes.WriteAt(lineOf(fileLineLen, fileLineMark+note), fileLineAt); err != nil {
		return fmt.Errorf("writing to %s: %w", t.path, err)
	}
	t.known = note
	return t.notes.Sync() // without this, a power failure could make Open refuse the store's own WAL
}

// note returns the note that setFile last wrote, or empty if unknown. It does not need the turn.
func (t *turn) note() string {
	rest, _ := strings.CutPrefix(t.readLine(fileLineAt, fileLineLen, fileLineMark), fileLineMark)
	return rest
}

// file returns the identity of the file that the store had last.
func (t *turn) file() string { return strings.TrimSuffix(t.note(), anotherMark) }

// setEpoch notes the store's epoch, so that it is not given again after an older copy replaces the store. The caller has the
// turn.
func (t *turn) setEpoch(epoch int64) error {
	if t.notes == nil || epoch <= t.epoch() {
		return nil
	}
	_, err := t.notes.WriteAt(lineOf(epochLineLen, fmt.Sprint(epochMark, epoch)), epochLineAt)
	return err
}

// epoch returns the greatest epoch that setEpoch has noted, or 0.
func (t *turn) epoch() int64 {
	text, _ := strings.CutPrefix(t.readLine(epochLineAt, epochLineLen, epochMark), epochMark)
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch < 0 || epoch >= store.MaxEpoch {
		return 0
	}
	return epoch
}

func (t *turn) readLine(at int64, length int, mark string) string {
	f, err := os.Open(t.path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	line := make([]byte, length)
	if _, err := f.ReadAt(line, at); err != nil || !bytes.HasPrefix(line, []byte(mark)) {
		return ""
	}
	return strings.ToValidUTF8(strings.Map(visible, strings.TrimRight(string(line), " \n")), "?")
}

// holder returns who has the turn, as the holder itself has written.
func (t *turn) holder() (pid int, since time.Time, who string) {
	f := strings.SplitN(t.readLine(holdLineAt, holdLineLen, holdLineMark), " ", 4)
	if len(f) != 4 {
		return 0, time.Time{}, ""
	}
	at, err := strconv.ParseInt(f[1], 10, 64)
	pid, err2 := strconv.Atoi(f[2])
	if err != nil || err2 != nil {
		return 0, time.Time{}, ""
	}
	return pid, time.UnixMicro(at), f[3]
}

// The bytes that SQLite locks: in the WAL's index for writing, and in the file itself.
var (
	logWriteLock = span{120, 120}
	fileLocks    = span{0x40000000, 0x40000000 + 511}
	wholeFile    = span{0, 1<<63 - 1}
)

// writers returns the processes that hold SQLite's write lock.
func writers(actual string) []int {
	return append(lockedBy(actual+"-shm", "POSIX", logWriteLock, true), lockedBy(actual, "POSIX", fileLocks, true)...)
}

// blocker says who keeps this process from its turn. The process that has the turn may itself wait for one that writes without
// taking turns.
func (t *turn) blocker() string {
	pid, since, who := t.holder()
	sure := false
	if locked := lockedBy(t.path, "FLOCK", wholeFile, true); len(locked) > 0 {
		sure = true
		if locked[0] != pid { // it has not written its name yet, or could not
			pid, since, who = locked[0], time.Time{}, programOf(locked[0])
		}
	}
	if pid == 0 {
		return "another process holds the turn to write, it may be stopped: let it go on or end it"
	}
	for _, writer := range writers(t.real) {
		if writer != pid {
			return t.writer(writer)
		}
	}
	text := fmt.Sprintf("process %d (%s) holds the turn to write", pid, who)
	if !since.IsZero() {
		text += fmt.Sprintf(" for %v", max(time.Since(since), 0).Round(100*time.Millisecond))
	}
	return text + advise(pid, sure)
}

// stranger says who holds SQLite's write lock while this process has the turn.
func (t *turn) stranger() string {
	for _, pid := range writers(t.real) {
		return t.writer(pid)
	}
	return "another program, or a transaction of this process, holds the file's write lock: end its transaction"
}

func (t *turn) writer(pid int) string {
	if pid == os.Getpid() {
		return fmt.Sprintf("a transaction of this process (%d, %s) holds the file's write lock: end it", pid, t.who)
	}
	return fmt.Sprintf("process %d (%s) holds the file's write lock", pid, programOf(pid)) + advise(pid, true)
}

// advise says what to do about a process. sure means that the process id is valid here, and not from another container.
func advise(pid int, sure bool) string {
	state := "it may be stopped"
	if sure && isStopped(pid) {
		state = "it is stopped"
	}
	return fmt.Sprintf(", %s: let it go on (kill -CONT %d) or end it (kill -9 %d)", state, pid, pid)
}

// programName is the default for Options.Name.
func programName() string { return filepath.Base(os.Args[0]) }
