package postgres

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The Postgres error codes that this store handles: https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeNotSupported   = "0A000"
	codeLockTimeout    = "55P03"
	codeCancelled      = "57014"
	codeWrongPassword  = "28P01"
	codeWrongUser      = "28000"
	codeNoDatabase     = "3D000"
	codeNoRight        = "42501"
	codeNoSetting      = "42704"
	codeNoTable        = "42P01"
	codeNoFunction     = "42883"
	codeReadOnly       = "25006"
	codeFailedTx       = "25P02"
	codeNoStatement    = "26000"
	codeFull           = "53100"
	codeTooMany        = "53300"
	codeNotNow         = "57P03"
	codeWrongState     = "55000"
	codeProtocol       = "08P01"
	classConnection    = "08"
	classValue         = "22" // of a setting
	classDatabase      = "3D" // it does not exist
	className          = "42" // of a setting, or in SQL
	classRollback      = "40"
	classResources     = "53"
	classIntervention  = "57"
	classSystem        = "58"
	classInternalError = "XX"
)

// codeOf returns the SQLSTATE in an error of any driver, or empty.
func codeOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// ours turns a driver error into the contract's, for a call of which nothing was committed.
func ours(err error) error {
	if denied(err) && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrDenied) {
		return sqlkit.Denied(err, advice)
	}
	return sqlkit.Unapplied(err, advice)
}

func denied(err error) bool {
	switch codeOf(err) {
	case codeWrongPassword, codeWrongUser, codeNoRight:
		return true
	case codeReadOnly:
		return madeReadOnly(err)
	}
	return false
}

// mayPass reports whether the same statement may succeed later.
func mayPass(err error) bool {
	code := codeOf(err)
	return code == "" || slices.Contains([]string{classConnection, classRollback, classResources, classIntervention, classSystem}, code[:2])
}

// stalePlan reports whether a table changed after the session had prepared the statement. Other unsupported features have the
// same code.
func stalePlan(err error) bool { return cameFrom(err, codeNotSupported, "RevalidateCachedQuery") }

// madeReadOnly reports whether the user, the database or the transaction may only read. A standby has the same code, but fails
// already in the opening, when it cannot give a transaction number.
func madeReadOnly(err error) bool { return cameFrom(err, codeReadOnly, "PreventCommandIfReadOnly") }

// cameFrom checks which function of the server raised the error. Its name is the same in all languages.
func cameFrom(err error, code, routine string) bool {
	if codeOf(err) != code {
		return false
	}
	if e, ok := errors.AsType[*pq.Error](err); ok {
		return e.Routine == routine
	}
	var other interface{ Routine() string } // in a caller's transaction
	return errors.As(err, &other) && other.Routine() == routine
}

// committed turns an error from COMMIT into the contract's. If the server refused the COMMIT, nothing was applied. If the
// server or the connection went away, nobody knows.
func committed(err error) error {
	code := codeOf(err)
	if code == "" {
		return sqlkit.InDoubt(err, advice)
	}
	switch code[:2] {
	case classConnection, classIntervention, classSystem, classInternalError:
		return sqlkit.InDoubt(err, advice)
	default:
		return ours(err)
	}
}

// passing reports whether the same call may succeed at once: it conflicted with another.
func passing(err error) bool {
	code := codeOf(err)
	conflict := code == codeSerialization || code == codeDeadlock || stalePlan(err) || errors.Is(err, errHolderGone)
	return conflict && errors.Is(err, store.ErrUnavailable)
}

// errHolderGone is the error of an Enqueue for whose jobs another one is waited for that held a unique key and is gone.
var errHolderGone = fmt.Errorf("%w: the holder of a unique key was deleted meanwhile, repeat the call", store.ErrUnavailable)

const sayPooled = "if you connect through a pooling proxy, set Options.Pooled (pooled=true in the URL)"

// advices are hints to put before errors, by code.
var advices = map[string]string{
	codeLockTimeout:   "another transaction holds the rows for too long: ",
	codeCancelled:     "the statement took too long: ",
	codeWrongPassword: "the server refuses the user or the password: ",
	codeWrongUser:     "the server refuses the user or the password: ",
	codeNoSetting:     "the server does not know a setting in the DSN, leave it out: ",
	codeNoDatabase:    "the database does not exist, create it first: ",
	codeNoRight:       "the user lacks a right: ",
	codeNoTable:       "the schema is gone: ",
	codeReadOnly:      "the server is read-only, perhaps a standby: ",
	codeFull:          "the server's disk is full: ",
	codeTooMany:       "the server has no free connection, give each process fewer (max_conns), connect through a pooler, or raise max_connections: ",
	codeNotNow:        "the server is starting or stopping, try again soon: ",
	codeProtocol:      sayPooled + ": ",
}

// advice returns a hint to put before the error.
func advice(err error) string {
	switch code := codeOf(err); {
	case code == "":
		return adviceOnConnection(err)
	case madeReadOnly(err):
		return "transactions may only read here, see default_transaction_read_only of the user and of the database: "
	default:
		return advices[code]
	}
}

func adviceOnConnection(err error) string {
	var network *net.OpError
	switch {
	case errors.Is(err, pq.ErrSSLNotSupported):
		return "the server does not support TLS, add sslmode=disable to the DSN if that is intended: "
	case errors.As(err, &network) && network.Op == "dial":
		return "no server answers there, start it or mend the DSN: "
	case errors.As(err, &network) && network.Timeout():
		return "the server is silent: "
	case errors.As(err, &network), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was lost: "
	default:
		return ""
	}
}

// openError says in one line why the store cannot be opened, and what to do.
func openError(schema string, err error) error {
	means := store.ErrUnavailable
	switch {
	case errors.Is(err, errUnconfirmed): // the commit of a migration step; it is safe to open again
		means, err = store.ErrInDoubt, errUnconfirmed
	case denied(err):
		means = store.ErrDenied
	case lasts(err):
		means = nil
	}
	return sqlkit.NotOpened("schema "+schema, means, err, advice)
}

// lasts reports whether opening again cannot help: the DSN names a missing database or an unknown setting, or a value is wrong.
func lasts(err error) bool {
	if _, ok := errors.AsType[*unfit](err); ok || errors.Is(err, pq.ErrSSLNotSupported) {
		return true
	}
	code := codeOf(err)
	return code != "" && slices.Contains([]string{classValue, classDatabase, className}, code[:2])
}

// unfit says why a server or a database cannot store jobs.
type unfit struct{ text string }

func (e *unfit) Error() string { return e.text }

// dsnError says that the DSN is invalid. It leaves out the driver's text about the syntax, which quotes the DSN and perhaps its
// password.
func dsnError(err error) error {
	if errors.Is(err, errHosts) {
		return errors.New("jq: the DSN can not be used: ports behind several hosts: want " +
			"postgres://user:password@/database?host=one,two&port=5432,5433, or host=one,two port=5432,5433")
	}
	if strings.HasPrefix(err.Error(), "pq: ") {
		return fmt.Errorf("jq: the DSN can not be used: %w", err)
	}
	return errors.New("jq: the DSN can not be read: want postgres://user:password@host/database, with special characters in the " +
		"password as %XX, or key=value pairs, with values in single quotes")
}
