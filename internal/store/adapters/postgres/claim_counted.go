package postgres

import (
	"context"
	"strconv"

	"github.com/seed-ed332417/jq/internal/store"
)

// Claims of a few jobs from a queue whose only limit is MaxInFlight.
//
// While there is room for all that a claim may take, even if all jobs that have slots are still in flight, one statement locks the queue, counts its slots, takes
// jobs and gives them slots. It counts by the function next_slot, whose queries see what the claims before it have committed.

// onlyInFlight reports whether MaxInFlight is the only limit of the policy.
func onlyInFlight(p store.Policy) bool { return p.MaxInFlight > 0 && !p.ByKey() && p.Rate.N == 0 }

// ofCounted takes jobs if there is room for as many as the claim may take. A claim that has tried in vain keeps its turn.
func (c *claim) ofCounted(ctx context.Context, l limited) (jobs []store.Job, done bool, err error) {
	if l.counted == nil || c.Limit >= l.most || c.Limit > few || c.s.shared { // the last slot stays, so that there are never as many free as may be in flight
		return nil, false, nil
	}
	turn, err := l.inTurn(ctx)
	if err != nil {
		return nil, false, err
	}
	if !l.counted.Tries() {
		c.turn = turn
		return nil, false, nil
	}
	defer func() {
		if c.turn == nil {
			turn()
		}
	}()
	c.plan = c.s.cursors.Plan(c.Queue) // others have taken jobs meanwhile
	marks := c.plan.MustLook()
	if c.plan.Stale() {
		due, counts, err := c.look(ctx)
		if err != nil || !counts || !due {
			return nil, counts && err == nil, err
		}
		c.plan = c.s.cursors.Plan(c.Queue)
	}
	begin, least := c.plan.Starts, c.Limit
	if marks {
		begin, least = c.plan.Marks, 1 // no job lies before them
	}
	jobs, ran, err := c.takeBy(ctx, takeCountedQuery, append(c.from(begin), c.Limit), least)
	switch {
	case err != nil || !ran:
		return nil, false, err
	case len(jobs) == 0:
		l.counted.Vain()
		c.turn = turn
		return nil, false, nil
	default:
		l.counted.Well()
		return jobs, true, nil
	}
}

// fewCounted takes at least $15 jobs from a queue whose only limit is MaxInFlight.
var fewCounted = fewKind{
	first: `
	room AS MATERIALIZED (
		SELECT {schema}.next_slot($4, $11, ` + strconv.Itoa(fewSlots) + `) AS next
	),`,
	admits: `(SELECT next FROM room) IS NOT NULL`,
	writes: `
	slots AS (
		INSERT INTO {schema}.slots (queue, number, job_id)
		SELECT $4, next - 1 + row_number() OVER (), found.id
		FROM given, room, found
	),`,
	counts: `jobs >= $15`,
}
