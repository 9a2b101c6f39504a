package postgres

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// What keeps one half of a recovery from its work leaves the other alone: leases that have expired, and those of a clock that was
// ahead.
func TestHalvesOfARecoveryFailApart(t *testing.T) {
	t.Parallel()
	for _, half := range []struct {
		name, refused string
		fails         bool // the call
		log           string
		ahead         time.Duration // how long the lease of the clock that was ahead still is
		left          int64         // leases that have expired
	}{
		{"WhatExpired", `NEW.lease_expires_at IS NULL`, true, "", time.Minute, 1},
		{"WhatLiesAhead", `NEW.lease_expires_at IS NOT NULL`, false, "looking for leases given by a fast clock failed", time.Hour + time.Minute, 0},
	} {
		t.Run(half.name, func(t *testing.T) {
			t.Parallel()
			shown, log := newClock(), &lines{}
			s := openStore(t, Options{Clock: shown, Logger: slog.New(slog.NewTextHandler(log, nil))})
			enqueue(t, s, 2)
			expired := claimN(t, s, 1)[0]
			shown.Add(time.Hour)
			ahead := claimN(t, s, 1)[0]
			shown.Add(2*time.Minute - time.Hour)
			_, err := s.callers.ExecContext(t.Context(), s.sql(`
				CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
				CREATE TRIGGER refuse BEFORE UPDATE ON {schema}.jobs FOR EACH ROW
				WHEN (OLD.lease_expires_at IS NOT NULL AND `+half.refused+`) EXECUTE FUNCTION {schema}.refuse()`))
			require.NoError(t, err)

			_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
			if half.fails {
				require.ErrorIs(t, err, store.ErrUnavailable)
			} else {
				require.NoError(t, err)
			}
			j, err := s.Get(t.Context(), expired.ID)
			require.NoError(t, err)
			assert.Equal(t, half.left == 1, j.State == store.InFlight, "the lease that has expired")
			j, err = s.Get(t.Context(), ahead.ID)
			require.NoError(t, err)
			assert.WithinDuration(t, shown.Now().Add(half.ahead), j.LeaseExpiresAt, 2*time.Minute, "the lease of the clock that was ahead")
			assert.Contains(t, log.String(), half.log)
		})
	}
}

// A caller that leaves in the middle of a recovery is no failure to report: its next one tries again.
func TestRecoveryThatIsCancelledWarnsOfNothing(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := openStore(t, Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, must := s.now.present.MustLook()
	require.True(t, must, "it has to look for leases given by a fast clock")
	s.bringBack(ctx, 10)
	_, must = s.now.present.MustLook()
	require.True(t, must, "it did not look")
	assert.Empty(t, log.String())
}
