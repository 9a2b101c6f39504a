package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The codes of Postgres that mean something to us: https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeLockTimeout    = "55P03"
	codeCancelled      = "57014"
	codeWrongPassword  = "28P01"
	codeWrongUser      = "28000"
	codeNoDatabase     = "3D000"
	codeNoRight        = "42501"
	codeNoTable        = "42P01"
	codeReadOnly       = "25006"
	codeFull           = "53100"
	codeTooMany        = "53300"
	classConnection    = "08"
	classIntervention  = "57"
	classSystem        = "58"
	classInternalError = "XX"
)

// codeOf is the code in an error of any driver, and empty if there is none.
func codeOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
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
	default:
		return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), err)
	}
}

// because is ours, and names the end of the context where that is the reason: a driver may say only that it was cancelled.
func because(ctx context.Context, err error) error {
	if err = ours(err); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrInDoubt) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// committed says what an error in answer to COMMIT means. Where the server refused it, nothing was applied; where the
// server or the connection went away, nobody knows.
func committed(err error) error {
	code := codeOf(err)
	if code == "" {
		return fmt.Errorf("%w: %w", store.ErrInDoubt, err)
	}
	switch code[:2] {
	case classConnection, classIntervention, classSystem, classInternalError:
		return fmt.Errorf("%w: %w", store.ErrInDoubt, err)
	default:
		return ours(err)
	}
}

// passing says that the same call may succeed at once: it was in the way of another.
func passing(err error) bool {
	code := codeOf(err)
	return (code == codeSerialization || code == codeDeadlock) && errors.Is(err, store.ErrUnavailable)
}

// advice is what to do, for errors that people meet.
func advice(err error) string {
	switch codeOf(err) {
	case codeLockTimeout:
		return "another transaction holds the rows for too long: "
	case codeCancelled:
		return "the statement took too long: "
	case codeWrongPassword, codeWrongUser:
		return "the server refuses the user or the password: "
	case codeNoDatabase:
		return "the database does not exist, create it first: "
	case codeNoRight:
		return "the user lacks a right: "
	case codeNoTable:
		return "the schema is gone: "
	case codeReadOnly:
		return "the server is read-only, perhaps a standby: "
	case codeFull:
		return "the server's disk is full: "
	case codeTooMany:
		return "the server has no connection left, use fewer (MaxConns): "
	default:
		return ""
	}
}

// openError says in one line why the store can not be opened, and what to do.
func openError(schema string, err error) error {
	if errors.Is(err, sqlkit.ErrNewer) {
		return fmt.Errorf("jq: schema %s: %w", schema, err)
	}
	return fmt.Errorf("jq: opening schema %s: %s%w", schema, advice(err), err)
}

// closedOr makes the error of a call that a Close has overtaken ErrClosed, where nothing was applied.
func (s *Store) closedOr(err error) error {
	if s.isClosed() && errors.Is(err, store.ErrUnavailable) {
		return store.ErrClosed
	}
	return err
}
