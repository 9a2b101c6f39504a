package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// An auditFile appends audit lines to a file. It reopens the file on SIGHUP, so you can rotate it. A nil auditFile does nothing.
type auditFile struct {
	path    string
	log     *slog.Logger // receives errors
	hangups chan os.Signal

	mu   sync.Mutex // guards file
	file *os.File
}

// audit returns the logger for the calls of operators, and its file if there is one. Without the flag both are nil, and the
// lines go to the server's log.
func (a *app) audit(path string, log *slog.Logger) (*slog.Logger, *auditFile, error) {
	switch path {
	case "":
		return nil, nil, nil
	case "-":
		return slog.New(slog.NewJSONHandler(a.std.err, nil)), nil, nil
	}
	f := &auditFile{path: path, log: log, hangups: make(chan os.Signal, 1)}
	if err := f.open(); err != nil {
		return nil, nil, err
	}
	signal.Notify(f.hangups, syscall.SIGHUP)
	return slog.New(slog.NewJSONHandler(f, nil)), f, nil
}

// open opens or creates the file. Only the owner can read a new file; the group may read an existing one if its mode allows it.
// If open fails, lines continue to go to the previous file.
func (f *auditFile) open() error {
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		if err = checkSecret(file); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("--audit: %w", err)
	}
	f.mu.Lock()
	before := f.file
	f.file = file
	f.mu.Unlock()
	if before != nil {
		return before.Close()
	}
	return nil
}

// Write appends a line.
func (f *auditFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.file.Write(line)
	if err != nil {
		f.log.Error("jq: could not write to the audit file: free some space, or send SIGHUP once the file can be opened", "error", err)
	}
	return n, err
}

// reopen opens the file again on each SIGHUP, until the context ends.
func (f *auditFile) reopen(ctx context.Context) {
	if f == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.hangups:
			if err := f.open(); err != nil {
				f.log.Error("jq: could not reopen the audit file; still writing to the old one", "error", oneLine(err))
			}
		}
	}
}

// Close closes the file.
func (f *auditFile) Close() error {
	if f == nil {
		return nil
	}
	signal.Stop(f.hangups)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
