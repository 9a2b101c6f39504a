package store

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
)

// CheckTx returns an [*InvalidError] if the type of tx alone shows that it is not an open transaction. For every other type the
// store must ask the database before it writes: a caller's own type can wrap a transaction or a pool.
func CheckTx(tx Tx) error {
	given := ""
	switch tx.(type) {
	case nil:
		given = "nil"
	case *sql.DB, *sql.Conn:
		given = fmt.Sprintf("a %T", tx)
	default:
		if v := reflect.ValueOf(tx); v.Kind() != reflect.Pointer || !v.IsNil() {
			return nil
		}
		given = fmt.Sprintf("a %T that is nil", tx)
	}
	return badTx("must be an open transaction, and not " + given + ": begin one with BeginTx, and hand that over")
}

// NotInTx returns the error for a tx that has run a statement outside of a transaction.
func NotInTx(tx Tx) error {
	return badTx(fmt.Sprintf("must be an open transaction, and %T is in none: begin one with BeginTx, and hand that over", tx))
}

// TxError turns an error of database/sql into an [*InvalidError] if it says that the transaction has ended: repeating the call
// in it does not help. It returns other errors unchanged.
func TxError(err error) error {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("%w: %w", badTx("must be an open transaction, and this one has ended: begin another, and do all of it there"), err)
	}
	return err
}

func badTx(rule string) error { return &InvalidError{Item: -1, Field: "tx", Rule: rule} }
