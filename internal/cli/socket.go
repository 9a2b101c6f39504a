package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// unixScheme is the prefix of the address of a Unix socket.
const unixScheme = "unix:"

// maxSocketPath is the limit of all systems, minus the length of the temporary name that bind uses.
const maxSocketPath = 80

// A socketListener listens on a Unix socket, and removes it on Close.
type socketListener struct {
	*net.UnixListener
	path string
	info fs.FileInfo  // identifies the socket
	lock *flock.Flock // held while listening
	end  func() error
}

// listenUnix listens on a socket. The socket never has another mode than the given one. listenUnix replaces the socket of a dead
// server.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	l := &socketListener{path: path, lock: flock.New(path+".lock", flock.SetPermissions(0o600))}
	l.end = sync.OnceValue(l.close)
	switch ours, err := l.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("the socket %s: %w", path, err)
	case !ours:
		return nil, errors.Join(inUse(path), l.lock.Close())
	}
	err := deadSocket(path)
	if err == nil {
		err = l.bind(mode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the socket %s: %w", path, err), l.lock.Close())
	}
	return l, nil
}

func inUse(path string) error {
	return fmt.Errorf("another server listens on the socket %s: stop it, or choose another path with --addr", path)
}

// deadSocket returns nil if the path is free or holds the socket of a dead server.
func deadSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("the path exists and is not a socket: choose another path with --addr")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		return errors.Join(inUse(path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	return err
}

// bind creates the socket in a private folder, sets its mode, and then renames it to the path.
func (l *socketListener) bind(mode fs.FileMode) error {
	folder, err := os.MkdirTemp(filepath.Dir(l.path), ".jq-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // empty, unless a later step failed
	name := filepath.Join(folder, "s")
	l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(name, mode)
	if err == nil {
		err = os.Rename(name, l.path)
	}
	if err == nil {
		l.info, err = os.Lstat(l.path)
	}
	if err != nil {
		return errors.Join(err, l.UnixListener.Close())
	}
	return nil
}

// Close stops listening and removes the socket, unless another file has replaced it.
func (l *socketListener) Close() error { return l.end() }

func (l *socketListener) close() error {
	var err error
	if info, gone := os.Lstat(l.path); gone == nil && os.SameFile(info, l.info) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close(), l.lock.Close())
}

// socketPath returns the path in the address of a Unix socket, and whether addr is one.
func socketPath(addr string) (path string, is bool, err error) {
	path, is = strings.CutPrefix(addr, unixScheme)
	if is && (path == "" || strings.HasPrefix(path, "//") || len(path) > maxSocketPath) {
		return "", true, misuse("--addr %q: want unix:PATH, such as unix:/run/jq.sock, of at most %d bytes", addr, maxSocketPath)
	}
	return path, is, nil
}

// socketMode parses the mode of a socket.
func socketMode(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, misuse("--socket-mode %q: want an octal number such as 0600 or 0660", text)
	}
	return fs.FileMode(mode), nil
}
