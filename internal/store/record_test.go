package store

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordIn is a job in the phase, with an earlier retry and what can be saved.
func recordIn(t *testing.T, phase State) Record {
	t.Helper()
	n := NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), MaxRetries: 5, Backoff: Backoff{Base: time.Second, Cap: time.Minute}}
	r := Record{Job: n.Row(7, noon), Epoch: 1}
	by := func(op Op) { act(t, &r, op, noon) }
	by(OpClaim)
	by(OpSave)
	by(OpFail)
	switch phase {
	case Ready:
		by(OpClaim)
		by(OpSnooze)
	case InFlight:
		by(OpClaim)
	case Retrying:
	case Succeeded:
		by(OpClaim)
		by(OpSave)
		by(OpAck)
	case Dead:
		by(OpClaim)
		by(OpNever)
	case Cancelled:
		by(OpCancel)
	case Blocked:
		by(OpCancel)
		by(OpRequeue)
		r.State = Blocked
	}
	require.Equal(t, phase, r.Phase())
	return r
}

// act does the operation to the job, under its own token.
func act(t *testing.T, r *Record, op Op, now time.Time) Status {
	t.Helper()
	l := r.Lease()
	nack := func(delay time.Duration) Status {
		n := NAck{Lease: l, Form: Form(op), Delay: delay, Error: "boom"}
		return r.NAck(n, n.Failure(), now).Status
	}
	switch op {
	case OpClaim:
		r.Claim(ClaimRequest{Worker: "w", TTL: time.Minute}, now)
		return StatusOK
	case OpRecover:
		r.Recover(now)
		return StatusOK
	case OpExtend:
		return r.Extend(l, time.Hour, now).Status
	case OpSave:
		s := Save{Lease: l, Seq: 3, Checkpoint: []byte(`1`), Progress: []byte(`2`)}
		return r.Save(s, s.Check()).Status
	case OpAck:
		a := Ack{Lease: l, Result: []byte(`3`)}
		return r.Ack(a, a.Refused(), now).Status
	case OpAfter, OpSnooze:
		return nack(time.Second)
	case OpFail, OpNever, OpRelease:
		return nack(0)
	case OpCancel:
		return r.Cancel(now).Status
	case OpRequeue:
		return r.Requeue(0, now).Status
	case OpReschedule:
		return r.Reschedule(now.Add(time.Hour), now).Status
	case OpDelete:
		return r.Delete().Status
	case OpUnblock:
		r.Hear([]KeptWait{{On: 1}}, End{ID: 1, As: Succeeded}, Awaits{}, now)
		return StatusOK
	}
	require.Fail(t, "no such operation", op)
	return ""
}

// TestRecordFollowsTheTable: each operation does to a job in each phase what the table of transitions says, and else nothing.
func TestRecordFollowsTheTable(t *testing.T) {
	for _, row := range Transitions {
		for _, phase := range Phases {
			before := recordIn(t, phase)
			after, later := before, noon.Add(time.Hour)
			legal := slices.Contains(row.From, phase)
			if !legal && (row.Op == OpClaim || row.Op == OpRecover) {
				continue // the store offers it no such job
			}
			status := act(t, &after, row.Op, later)
			what := string(row.Op) + " of a job that is " + string(phase)
			if !legal || row.Op == OpDelete {
				assert.Equal(t, before, after, what)
				assert.Equal(t, legal, status == StatusOK && row.Op == OpDelete, what)
				continue
			}
			assert.Equal(t, StatusOK, status, what)
			assert.Contains(t, row.To, after.Phase(), what)
			assert.Equal(t, changed(row.Token, before.Token, NextToken(before.Token, 1)), after.Token, what)
			assert.Equal(t, changed(row.Attempts, before.Attempts, before.Attempts+1), after.Attempts, what)
			assert.Equal(t, changed(row.Retries, before.Retries, before.Retries+1), after.Retries, what)
			assert.Equal(t, after.State == InFlight, !after.LeaseExpiresAt.IsZero(), what)
			assert.Equal(t, after.Terminal(), !after.FinishedAt.IsZero(), what)
			assert.Equal(t, after.Phase() == Retrying, !after.RetryAt.IsZero(), what)
		}
	}
}

// changed is what becomes of a counter.
func changed[N int | int64](c Change, before, plus N) N {
	return map[Change]N{Same: before, Plus: plus, Minus: before - 1, Reset: 0}[c]
}

// TestNoRecordIsNoJob: what is done to a job that is not there finds none.
func TestNoRecordIsNoJob(t *testing.T) {
	var none *Record
	l := Lease{ID: 7, Token: 1}
	want := Outcome{ID: 7, Status: StatusNotFound}
	assert.Equal(t, want, none.Ack(Ack{Lease: l}, nil, noon))
	assert.Equal(t, want, none.NAck(NAck{Lease: l, Form: Fail}, Failure{}, noon))
	assert.Equal(t, want, none.Extend(l, time.Second, noon))
	assert.Equal(t, want, none.Save(Save{Lease: l}, nil))
	assert.Equal(t, ErrNotFound, none.MustHold(l, FinishedByAck))
	assert.Equal(t, StatusInvalid, none.NAck(NAck{Lease: l}, Failure{}, noon).Status, "an invalid item is invalid whatever its lease")
}

// TestRecordKnowsHowItsHolderFinished, and tells the same again from another way.
func TestRecordKnowsHowItsHolderFinished(t *testing.T) {
	ways := []struct {
		by  FinishedBy
		ops []Op
	}{{FinishedByAck, []Op{OpAck}}, {FinishedByFail, []Op{OpFail, OpNever, OpAfter}}, {FinishedBySnooze, []Op{OpSnooze}}, {FinishedByRelease, []Op{OpRelease}}}
	for _, first := range ways {
		for _, op := range first.ops {
			done := recordIn(t, InFlight)
			held := done.Lease()
			require.Equal(t, StatusOK, act(t, &done, op, noon))
			assert.Equal(t, StatusFinished, done.Extend(held, time.Second, noon).Status)
			for _, again := range ways {
				want, strict := StatusStale, ErrStaleLease
				if again.by == first.by {
					want, strict = StatusOK, nil
				}
				for _, other := range again.ops {
					after := done
					assert.Equal(t, want, act(t, &after, other, noon.Add(time.Hour)), "%s after %s", other, op)
					assert.Equal(t, done, after)
				}
				err := done.MustHold(held, again.by)
				require.ErrorIs(t, err, ErrAlreadyFinished)
				if strict != nil {
					require.ErrorIs(t, err, strict)
				} else {
					require.NotErrorIs(t, err, ErrStaleLease)
				}
			}
			done.Claim(ClaimRequest{Worker: "w", TTL: time.Second}, noon)
			assert.Equal(t, StatusStale, done.Extend(held, time.Second, noon).Status)
			assert.Equal(t, ErrStaleLease, done.MustHold(held, first.by))
		}
	}
}
