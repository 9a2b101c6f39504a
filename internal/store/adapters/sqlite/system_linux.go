package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// identify returns an identity that no other file under this name had or will have, and the number of the file's names. Inode
// numbers are soon reused, so the identity includes the time of birth if the file system keeps one. It leaves out the device
// number, which can change when the machine restarts.
func identify(path string) (identity string, names uint64, err error) {
	var stat unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_NLINK, &stat)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a sandbox that does not know the call
		info, err := os.Stat(path)
		if err != nil {
			return "", 0, err
		}
		old, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return "", 1, nil
		}
		return fmt.Sprintf("inode=%d", old.Ino), uint64(old.Nlink), nil //nolint:unconvert // it has 32 bits on some machines
	}
	if err != nil {
		return "", 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	identity = fmt.Sprintf("inode=%d", stat.Ino)
	if stat.Mask&unix.STATX_BTIME != 0 {
		identity += fmt.Sprintf(",born=%d.%09d", stat.Btime.Sec, stat.Btime.Nsec)
	}
	return identity, uint64(stat.Nlink), nil
}

// writable reports whether this process may write to the path.
func writable(path string) bool {
	return unix.Access(path, unix.W_OK) == nil
}

// tryLock locks the file as flock(2) does, if nobody else has locked it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// A span is a range of bytes in a file.
type span struct{ from, to int64 }

// lockedBy returns the processes that, according to the system, hold a lock on the file that overlaps the span: a write lock,
// or any. It does not open the file.
func lockedBy(path, kind string, only span, writeOnly bool) []int {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return nil
	}
	device := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	table, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}
	defer func() { _ = table.Close() }()
	var pids []int
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// 1: POSIX  ADVISORY  WRITE 3825 fe:00:778396 120 120
		f := strings.Fields(lines.Text())
		if len(f) != 8 || f[1] != kind || writeOnly && f[3] != "WRITE" || f[5] != device {
			continue // also the lines of waiting processes, which have an arrow
		}
		pid, err := strconv.Atoi(f[4])
		from, err2 := strconv.ParseInt(f[6], 10, 64)
		to, err3 := strconv.ParseInt(f[7], 10, 64)
		if f[7] == "EOF" {
			to, err3 = only.to, nil
		}
		if errors.Join(err, err2, err3) == nil && pid > 0 && from <= only.to && to >= only.from {
			pids = append(pids, pid)
		}
	}
	return pids
}

// programOf returns the name of the process's program.
func programOf(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// isStopped reports whether the process was stopped, as by SIGSTOP.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return strings.HasPrefix(after, "T") || strings.HasPrefix(after, "t")
}

// likeThat gives the file the owner and mode of the one at the path, if that exists. Only root can change the owner.
func likeThat(f *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // where there is none, the file is its maker's
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(info.Mode().Perm())
}
