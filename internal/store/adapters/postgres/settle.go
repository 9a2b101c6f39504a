package postgres

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A step of Settle changes so many jobs at most. It pauses after each, for so many times as long as that took, so that other calls hardly
// notice when there is much to do.
const (
	settledAtOnce = 100
	pauses        = 2
	longestRest   = 100 * time.Millisecond
)

// Settle is part of the contract. It does in steps what follows from the ends of jobs, each in a transaction of its own.
func (s *Store) Settle(ctx context.Context, limit int) (settled []store.Settled, err error) {
	invalid := store.CheckSettle(limit)
	exist := 0
	if invalid == nil {
		if _, exist, err = s.exist(ctx, existToSettle); exist == 0 || err != nil {
			return nil, err
		}
	}
	var did step
	for more := true; more; {
		part := min(limit-len(settled), settledAtOnce)
		var took time.Duration
		did, took, err = s.settleStep(ctx, invalid, part, did.next, exist)
		for _, e := range did.changed {
			settled = append(settled, store.SettledOf(&e.Job))
		}
		more = err == nil && len(settled) < limit && (did.more || len(did.changed) >= part)
		exist &^= toForget // once is enough
		if more && !sqlkit.Rest(ctx, min(pauses*took, longestRest)) {
			more = false
			s.tellLeft()
		}
	}
	if len(settled) > 0 { // that is committed
		err = nil
	}
	return settled, err
}

// settleStep also returns how long the step took, once it could begin.
func (s *Store) settleStep(ctx context.Context, invalid error, limit int, from reached, exist int) (did step, took time.Duration, err error) {
	done, _ := s.nextStep(ctx) // if the context ends, so does the call
	defer done()
	began := time.Now()
	did, err = write(ctx, s, invalid, func(t *txn) (step, error) {
		began = time.Now()
		return t.settle(limit, from, exist)
	})
	return did, time.Since(began), err
}

var existToSettle = existing(`{schema}.jobs WHERE `+waitsToExpire+` AND expires_at <= `+statementNow, `{schema}.looks`, `{schema}.ends`,
	`{schema}.gone WHERE deleted_at <= `+statementNow+` - interval '1 day'`)

// The bits of existToSettle for what follows from the ends of jobs, and for deletions that are to be forgotten.
const (
	toFollowUp = 2 | 4
	toForget   = 8
)

const waitsToExpire = `expires_at IS NOT NULL AND finished_at IS NULL AND lease_expires_at IS NULL`

// settle cancels jobs that have expired, and takes the next step of what follows from the ends of jobs.
func (t *txn) settle(limit int, from reached, exist int) (step, error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentEpoch+`
		FROM {schema}.jobs
		WHERE `+waitsToExpire+` AND expires_at <= $1
		ORDER BY expires_at, id
		LIMIT $2
		FOR UPDATE SKIP LOCKED`,
		t.now, limit)
	if err != nil {
		return step{}, err
	}
	var c cancelling
	for _, e := range expired {
		c.apply(t, e)
	}
	if err := c.end(t, nil); err != nil {
		return step{}, err
	}
	if exist&toForget != 0 {
		if err := t.forgetGone(); err != nil {
			return step{}, err
		}
	}
	var did step
	if t.heard || len(t.left) > 0 || exist&toFollowUp != 0 {
		did, err = t.step(limit-len(expired), from, t.s.options.LockTimeout)
	}
	did.changed = append(expired, did.changed...)
	return did, err
}
