package sqlite

import (
	"context"
	"errors"

	"github.com/jmoiron/sqlx"
)

// applicationID marks a file as a store of jobs: "jobq" in ASCII. file(1) reads it from the header.
const applicationID = 0x6a6f6271

// An owner is what a file says about its owner.
type owner struct {
	Journal string `db:"journal_mode"`
	ID      int32  `db:"application_id"`
	Tables  int    `db:"tables"` // of any program
	Ours    int    `db:"ours"`   // those of the two tables and the index that every store has
}

func ownerOf(ctx context.Context, db *sqlx.DB) (owner, error) {
	var found owner
	err := db.GetContext(ctx, &found, `
		SELECT journal.journal_mode, mark.application_id, made.tables, made.ours
		FROM pragma_journal_mode AS journal, pragma_application_id AS mark, (
			SELECT count(*) AS tables,
				count(*) FILTER (WHERE name IN ('migrations', 'jobs', 'jobs_ready')) AS ours
			FROM sqlite_schema) AS made`)
	return found, err
}

// isStore reports whether the file contains a store.
func (o owner) isStore() bool { return o.Ours == 3 }

// unmarked reports whether the mark must still be set: stores of earlier versions have none.
func (o owner) unmarked(options Options) bool { return o.ID == 0 && !options.Shared }

// refuse returns why a store must not be created in the file.
func (o owner) refuse(options Options) error {
	switch {
	case o.isStore(), options.Shared, o.ID == applicationID, o.ID == 0 && o.Tables == 0:
		return nil
	case o.ID != 0:
		return errors.New("the file's application_id says that it belongs to another program: name another, or set Options.Shared if it is yours")
	default:
		return errors.New("the file holds another program's tables: name another, or set Options.Shared if they are yours")
	}
}
