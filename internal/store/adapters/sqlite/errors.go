package sqlite

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The SQLite result codes that this store handles: https://www.sqlite.org/rescode.html.
const (
	codeError    = 1
	codeBusy     = 5
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// codeOf returns the primary SQLite result code of the error, or 0 if it has none.
func codeOf(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	return 0
}

// ours turns a driver error into the contract's, for a call of which nothing was committed.
func ours(err error) error { return sqlkit.Unapplied(err, advice) }

// committed turns an error from COMMIT into the contract's. Only a full disk and a lock leave no doubt: after a failed write or
// sync, the WAL may still contain the commit, and SQLite would find it when it next opens the file.
func committed(err error) error {
	switch codeOf(err) {
	case codeFull, codeBusy:
		return ours(err)
	default:
		return sqlkit.InDoubt(err, advice)
	}
}

// advice returns a hint to put before the error.
func advice(err error) string {
	switch codeOf(err) {
	case codeBusy:
		return "another transaction holds the file for too long: "
	case codeReadOnly:
		return "the file, one beside it or their folder is read-only, make all of them writable: "
	case codeIO:
		return "the disk is full or failing: "
	case codeFull:
		return "the disk is full: "
	case codeCantOpen:
		return "the file can not be opened, it and its folder must be there and writable: "
	case codeNotADB:
		return "the file is not an SQLite database, name another: "
	}
	if errors.Is(err, syscall.ENOSPC) {
		return "the disk is full: "
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return "the file, one beside it or their folder is read-only, make all of them writable: "
	}
	return ""
}

// openError says in one line why the store cannot be opened, and what to do.
func openError(path string, err error) error {
	return sqlkit.NotOpened(path, store.ErrUnavailable, err, advice)
}
