package store

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
)

// CheckTx refuses what by its type alone is no open transaction. Of everything else the store must ask the database before it
// writes: a type of the caller's own can stand around a transaction or around a pool.
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

// NotInTx refuses what has run a statement outside of a transaction.
func NotInTx(tx Tx) error {
	return badTx(fmt.Sprintf("must be an open transaction, and %T is in none: begin one with BeginTx, and hand that over", tx))
}

// TxError is an error of database/sql in the words of the contract, where it says that the transaction has ended: to repeat the
// call in it is of no use. Other errors stay as they are.
func TxError(err error) error {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("%w: %w", badTx("must be an open transaction, and this one has ended: begin another, and do all of it there"), err)
	}
	return err
}

func badTx(rule string) error { return &InvalidError{Item: -1, Field: "tx", Rule: rule} }
