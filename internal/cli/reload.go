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

// pollEvery is the interval between checks of the files. After a change, a file must stay the same for stableFor before it is
// read, because a writer may not be finished. Together they are one second.
const (
	pollEvery = time.Second - stableFor
	stableFor = 50 * time.Millisecond
)

// watchedFiles are files that are loaded together, again whenever one of them has changed.
type watchedFiles struct {
	files  []string
	load   func() (loaded []any, err error) // returns attributes for the log; on an error the previous values remain in use
	loaded []any                            // attributes of the first load
	read   []fileState                      // when the files were last loaded
	seen   []fileState                      // at the latest check
}

// A fileState identifies a version of a file.
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

// same reports whether nothing has changed. It includes mode and owner, because a wrong mode can be why a load failed.
func (s fileState) same(other fileState) bool {
	if s.info == nil || other.info == nil {
		return s.info == other.info && s.err == other.err
	}
	return os.SameFile(s.info, other.info) && s.info.ModTime().Equal(other.info.ModTime()) && s.info.Size() == other.info.Size() &&
		s.info.Mode() == other.info.Mode() && sameOwner(s.info, other.info)
}

func sameStates(one, other []fileState) bool { return slices.EqualFunc(one, other, fileState.same) }

// first loads the files for the first time.
func (w *watchedFiles) first() (err error) {
	w.read = w.states()
	w.seen = w.read
	w.loaded, err = w.load()
	return err
}

// A reloader loads files again when they have changed.
type reloader struct {
	clock clock.Clock
	log   *slog.Logger
	all   []*watchedFiles
}

const filesRead = "jq: loaded files"

// run checks the files until the context ends. On a hangup it loads them at once.
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

// check loads the files if now is set, or if they have changed and are stable. It reports whether a change is still to be loaded.
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
