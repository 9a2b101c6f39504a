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

// An auditFile is where the lines of an audit go. It can be moved away, and is opened anew at SIGHUP. A nil one is no file.
type auditFile struct {
	path    string
	log     *slog.Logger   // hears what could not be written
	hangups chan os.Signal // that it was moved

	mu   sync.Mutex // guards file
	file *os.File
}

// audit is the logger of what operators do, and the file behind it, if there is one. Without the flag there is none of both: the lines
// go to the log of the server.
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

// open opens the file at the path, and makes it where there is none. Only its owner may read it, unless somebody else has made it so
// that its group may. Where that fails the lines go on to the file of before.
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

// reopen opens the file anew whenever it is told to, until the context ends.
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
