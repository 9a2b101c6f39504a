package postgres

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// Whatever code a server has for not saying who it is, the store opens, and tells people that it notices no failover. A trouble that may
// pass is none of these: a store that was opened then would never ask again.
func TestAServerThatDoesNotSayWhoItIs(t *testing.T) {
	t.Parallel()
	dsn := ownServer(t, pgtest.Options{}).DSN
	admin := openOn(t, dsn, "admin")
	for code, opens := range map[string]bool{
		codeNotSupported: true, codeNoRight: true, codeNoFunction: true, "XX000": true, "22000": true, "P0001": true, "99999": true,
		codeCancelled: false, codeTooMany: false, codeSerialization: false,
	} {
		mute := pgtest.NewSchema()
		_, err := admin.callers.ExecContext(t.Context(), `
			CREATE SCHEMA "`+mute+`";
			CREATE FUNCTION "`+mute+`".pg_control_system(OUT system_identifier bigint) LANGUAGE plpgsql AS
				$$ BEGIN RAISE 'this service tells nobody' USING ERRCODE = '`+code+`'; END $$`)
		require.NoError(t, err)
		log := &lines{}
		s, err := Open(t.Context(), dsn+` search_path='"`+mute+`",pg_catalog'`,
			&Options{Schema: pgtest.NewSchema(), Logger: slog.New(slog.NewTextHandler(log, nil))})
		if !opens {
			require.ErrorIs(t, err, store.ErrUnavailable, code)
			continue
		}
		require.NoError(t, err, code)
		assert.Contains(t, log.String(), "does not reveal its identity", code)
		enqueue(t, s, 1)
		assert.Len(t, claimN(t, s, 1), 1, code)
		require.NoError(t, s.Close())
	}
}
