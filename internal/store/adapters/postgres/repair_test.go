package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A part of a repair whose commit was in the way of another is begun anew, and not the part behind it.
func TestRepairThatIsBegunAnewLeavesNothingOut(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := openStore(t, Options{Clock: shown})
	enqueue(t, s, 3)
	shown.Add(-time.Hour)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		CREATE SEQUENCE {schema}.commits;
		CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('{schema}.commits') = 1 THEN
				RAISE 'in the way' USING ERRCODE = '40001';
			END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON {schema}.jobs DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()`))
	require.NoError(t, err)
	moved, err := s.Repair(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, moved)
	assert.Len(t, claimN(t, s, 10), 3)
}
