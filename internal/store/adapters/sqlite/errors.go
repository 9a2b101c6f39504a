package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The result codes of SQLite that mean something to us: https://www.sqlite.org/rescode.html.
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeAborted  = 9
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// codeOf is the primary result code of SQLite in the error, and 0 if there is none.
func codeOf(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	return 0
}

// ours says in the words of the contract what an error of the driver means for a call of which nothing was committed.
func ours(err error) error {
	var invalid *store.InvalidError
	switch {
	case err == nil, errors.As(err, &invalid):
		return err
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrStaleLease), errors.Is(err, store.ErrAlreadyFinished),
		errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrInDoubt), errors.Is(err, store.ErrClosed):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), err)
	}
}

// brokenOff is ours for a call that runs on its caller's context, the end of which may come as an error of SQLite.
func brokenOff(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && codeOf(err) == codeAborted {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ended)
	}
	return ours(err)
}

// committed says what an error in answer to COMMIT means. Only a full disk and a lock leave no doubt: after a failed write
// or sync the commit may stand in the log all the same, to be found when the file is opened next.
func committed(err error) error {
	switch codeOf(err) {
	case codeFull, codeBusy:
		return ours(err)
	default:
		return fmt.Errorf("%w: %w", store.ErrInDoubt, err)
	}
}

// advice is what to do, for errors that people meet.
func advice(err error) string {
	switch codeOf(err) {
	case codeBusy:
		return "another transaction holds the file for too long: "
	case codeReadOnly:
		return "the file or its folder is read-only: "
	case codeFull:
		return "the disk is full: "
	case codeCantOpen:
		return "the file can not be opened: "
	case codeNotADB:
		return "the file is no SQLite database: "
	default:
		return ""
	}
}

// openError says in one line why the store can not be opened, and what to do.
func openError(path string, err error) error {
	if errors.Is(err, sqlkit.ErrNewer) {
		return fmt.Errorf("jq: %s: %w", path, err)
	}
	return fmt.Errorf("jq: opening %s: %s%w", path, advice(err), err)
}

// closedOr makes the error of a call that a Close has overtaken ErrClosed.
func (s *Store) closedOr(err error) error {
	select {
	case <-s.closed:
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return store.ErrClosed
		}
	default:
	}
	return err
}
