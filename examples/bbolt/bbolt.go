// Package bbolt keeps jobs in one file of go.etcd.io/bbolt, for one process at a time. It is an example of an engine for package kv,
// outside jq: it imports only jq's public packages, and package jqtest tests it.
//
//	store, err := bbolt.Open(ctx, "jobs.bolt", nil)
//
// A commit waits for the disk, unless you set Options.NoSync.
package bbolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/benbjohnson/clock"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-ed332417/jq/kv"
)

// Options configures Open. Zero fields mean the default.
type Options struct {
	Clock    clock.Clock   // nil means the clock of the process
	MaxLease time.Duration // no lease is longer; zero means an hour
	Logger   *slog.Logger  // gets a line when the clock goes back; nil means slog.Default()
	NoSync   bool          // commits do not wait for the disk: for tests, or if a power loss may lose the latest jobs

	openFile func(path string, flag int, mode os.FileMode) (*os.File, error) // replaced by a test to make the file fail
}

// Open opens the store in the file, and creates the file if it does not exist. Options may be nil.
func Open(ctx context.Context, path string, options *Options) (*kv.Store, error) {
	options = cmp.Or(options, &Options{})
	if err := ctx.Err(); err != nil {
		return nil, openError(path, err)
	}
	e, err := openEngine(path, options)
	if err != nil {
		return nil, openError(path, err)
	}
	return kv.Open(ctx, e, &kv.Options{Clock: options.Clock, MaxLease: options.MaxLease, Logger: options.Logger})
}

func openEngine(path string, options *Options) (*engine, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:      lockPatience,
		FreelistType: bolt.FreelistMapType,
		NoSync:       options.NoSync,
		NoGrowSync:   options.NoSync,
		OpenFile:     options.openFile,
	})
	if err != nil {
		return nil, err
	}
	e := &engine{db: db, turn: make(chan struct{}, 1)}
	if err := e.prepare(); err != nil {
		_ = db.Close() // the first error says more
		return nil, err
	}
	return e, nil
}

// lockPatience is how long Open waits for another process to release the file.
const lockPatience = time.Second

// openError says in one line why the file cannot be opened, and what to do.
func openError(path string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		advice = "another process has it open, and one at a time can: "
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		advice = "it is no file of bbolt, or is damaged, name another: "
	}
	return fmt.Errorf("jq: opening %s: %s%w", path, advice, err)
}
