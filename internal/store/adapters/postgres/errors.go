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

// The codes of Postgres that mean something to us: https://www.postgresql.org/docs/current/errcodes-appendix.html.
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
	codeFull           = "53100"
	codeTooMany        = "53300"
	codeNotNow         = "57P03"
	codeWrongState     = "55000"
	codeProtocol       = "08P01"
	classConnection    = "08"
	classValue         = "22" // of a setting
	classDatabase      = "3D" // there is none of that name
	className          = "42" // of a setting, or in SQL
	classRollback      = "40"
	classResources     = "53"
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

// stalePlan says that the session has prepared the statement for tables that are others now. Whatever else the server does not
// support has the same code.
func stalePlan(err error) bool { return cameFrom(err, codeNotSupported, "RevalidateCachedQuery") }

// madeReadOnly says that somebody lets the user, the database or the transaction only read. A standby has the same code, and says
// in the opening already that it can give no number.
func madeReadOnly(err error) bool { return cameFrom(err, codeReadOnly, "PreventCommandIfReadOnly") }

// cameFrom looks for the function of the server that has raised the error, which has one name in all languages.
func cameFrom(err error, code, routine string) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && string(e.Code) == code && e.Routine == routine
}

// committed says what an error in answer to COMMIT means. Where the server refused it, nothing was applied; where the
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

// passing says that the same call may succeed at once: it was in the way of another.
func passing(err error) bool {
	code := codeOf(err)
	return (code == codeSerialization || code == codeDeadlock || stalePlan(err)) && errors.Is(err, store.ErrUnavailable)
}

const sayPooled = "if a pooling proxy stands in between, say so (Options.Pooled, or pooled=true in the URL)"

// advices are what to do, by code.
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
	codeTooMany:       "the server has no connection left, use fewer (MaxConns): ",
	codeNotNow:        "the server is starting or stopping, try again soon: ",
	codeProtocol:      sayPooled + ": ",
}

// advice is what to do, for errors that people meet.
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
		return "the server speaks no TLS, add sslmode=disable to the DSN if that is meant: "
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

// openError says in one line why the store can not be opened, and what to do.
func openError(schema string, err error) error {
	means := store.ErrUnavailable
	switch {
	case errors.Is(err, errUnconfirmed): // a step to the newest schema; to open again is safe
		means, err = store.ErrInDoubt, errUnconfirmed
	case denied(err):
		means = store.ErrDenied
	case lasts(err):
		means = nil
	}
	return sqlkit.NotOpened("schema "+schema, means, err, advice)
}

// lasts says that to open again is no use: the DSN names a database or a setting that there is not, or its value is wrong.
func lasts(err error) bool {
	if _, ok := errors.AsType[*unfit](err); ok || errors.Is(err, pq.ErrSSLNotSupported) {
		return true
	}
	code := codeOf(err)
	return code != "" && slices.Contains([]string{classValue, classDatabase, className}, code[:2])
}

// unfit says why a server or a database is none to keep jobs in.
type unfit struct{ text string }

func (e *unfit) Error() string { return e.text }

// dsnError says that a DSN is no DSN. What the driver says of its syntax is left out: that quotes it, and with it perhaps the
// password.
func dsnError(err error) error {
	if errors.Is(err, errHosts) {
		return errors.New("jq: the DSN can not be used: ports behind several hosts: want " +
			"postgres://user:password@/database?host=one,two&port=5432,5433, or host=one,two port=5432,5433")
	}
	if strings.HasPrefix(err.Error(), "pq: ") {
		return fmt.Errorf("jq: the DSN can not be used: %w", err)
	}
	return errors.New("jq: the DSN can not be read: want postgres://user:password@host/database, with what is special in a " +
		"password as %XX, or key=value pairs, with values in single quotes")
}
