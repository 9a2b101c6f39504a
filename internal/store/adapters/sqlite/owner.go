package sqlite

import (
	"context"
	"errors"

	"github.com/jmoiron/sqlx"
)

// applicationID marks a file as a store of jobs: "jobq" in ASCII. The file(1) command and others read it in the file's header.
const applicationID = 0x6a6f6271

// An owner is what a file says of whose it is.
type owner struct {
	Journal string `db:"journal_mode"`
	ID      int32  `db:"application_id"`
	Tables  int    `db:"tables"` // of anybody
	Ours    int    `db:"ours"`   // of the two tables and the index that every store has
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

const schemaVersion = `
	SELECT coalesce(max(version), 0)
	FROM migrations`

func versionOf(ctx context.Context, db *sqlx.DB) (int, error) {
	var version int
	err := db.GetContext(ctx, &version, schemaVersion)
	return version, err
}

// isStore says that a store was made in the file.
func (o owner) isStore() bool { return o.Ours == 3 }

// unmarked says that the mark is still to be set: stores made by earlier versions have none.
func (o owner) unmarked(options Options) bool { return o.ID == 0 && !options.Shared }

// refuse says why no store is to be made in the file.
func (o owner) refuse(options Options) error {
	switch {
	case o.isStore(), options.Shared, o.ID == applicationID, o.ID == 0 && o.Tables == 0:
		return nil
	case o.ID != 0:
		return errors.New("the file belongs to another program, as its application_id says: name another, or set Options.Shared if it is yours")
	default:
		return errors.New("the file holds another program's tables: name another, or set Options.Shared if they are yours")
	}
}
