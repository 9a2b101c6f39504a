package cli

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/benbjohnson/clock"
)

// How often files are looked at, and for how long one that has changed must stay as it is before it is read: whoever writes it may
// not be done. Both together are a second.
const (
	pollEvery = time.Second - stableFor
	stableFor = 50 * time.Millisecond
)

// A watched is what is read from files, and read anew when one of them has changed.
type watchedFiles struct {
	files  []string
	load   func() (loaded []any, err error) // what it tells goes into the log; an error means that nothing has changed
	loaded []any                            // at the first time
	read   []fileState                      // of the files when they were read
	seen   []fileState                      // of the files at the latest look
}

// A fileState tells one state of a file from another.
type fileState struct {
	info fs.FileInfo
	err  string
}

func (w *watchedFiles) states() []fileState {
	var all []fileState
	for _, file := range w.files {
		info, err := os.Stat(file)
		if err != nil {
			all = append(all, fileState{err: err.Error()})
			continue
		}
		all = append(all, fileState{info: info})
	}
	return all
}

// same says whether nothing has changed, the rights included: they can be what was wrong.
func (s fileState) same(other fileState) bool {
	if s.info == nil || other.info == nil {
		return s.info == other.info && s.err == other.err
	}
	return os.SameFile(s.info, other.info) && s.info.ModTime().Equal(other.info.ModTime()) && s.info.Size() == other.info.Size() &&
		s.info.Mode() == other.info.Mode() && sameOwner(s.info, other.info)
}

func sameStates(one, other []fileState) bool { return slices.EqualFunc(one, other, fileState.same) }

// first reads the files for the first time.
func (w *watchedFiles) first() (err error) {
	w.read = w.states()
	w.seen = w.read
	w.loaded, err = w.load()
	return err
}

// A reloader reads files anew that have changed.
type reloader struct {
	clock clock.Clock
	log   *slog.Logger
	all   []*watchedFiles
}

const filesRead = "jq: loaded files"

// run looks at the files until the context ends, and at once when it is told to.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for _, w := range r.all {
		r.log.Info(filesRead, w.loaded...)
	}
	pause := pollEvery
	for {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			now = true
		case <-r.clock.After(pause):
		}
		pause = pollEvery
		for _, w := range r.all {
			if r.check(w, now) {
				pause = stableFor
			}
		}
	}
}

// look reads the files if they have changed and are not being written any more, or now. It says whether they are still to be read.
func (r *reloader) check(w *watchedFiles, now bool) (again bool) {
	states := w.states()
	changed, settled := !sameStates(states, w.read), sameStates(states, w.seen)
	w.seen = states
	if !now && !(changed && settled) {
		return changed
	}
	w.read = states
	loaded, err := w.load()
	if err != nil {
		r.log.Error("jq: a changed file is invalid; keeping the values that were read before", "error", oneLine(err))
		return false
	}
	r.log.Info(filesRead, loaded...)
	return false
}
