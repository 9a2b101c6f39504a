package sqlkit

import (
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// CheckTx is [store.CheckTx] that also knows the types of sqlx.
func CheckTx(tx store.Tx) error {
	switch tx.(type) {
	case *sqlx.DB, *sqlx.Conn:
		return badTx(fmt.Sprintf("must be an open transaction, and not a %T: begin one with BeginTxx, and hand that over", tx))
	default:
		return store.CheckTx(tx)
	}
}

// FailedTx refuses a transaction that has failed: the database runs nothing more in it. The error is the earlier failure.
func FailedTx(err error) error {
	return fmt.Errorf("%w: %w", badTx("must be an open transaction, and this one has failed: roll it back, and do all of it in another"), err)
}

// OtherTx refuses a transaction on a database that is not the store's.
func OtherTx(mine, other string) error {
	return badTx(fmt.Sprintf("must be a transaction on the store's database, %s, and is one on %s", mine, other))
}

func badTx(rule string) error { return &store.InvalidError{Item: -1, Field: "tx", Rule: rule} }
