package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

const week = 7 * 24 * time.Hour

// rare returns the options of a server in a test of deletions, which lasts days: everything else happens once an hour.
func rare(retainEvery time.Duration) Options {
	return Options{
		Claim:     ClaimOptions{PollInterval: time.Hour},
		Lease:     LeaseOptions{Duration: time.Hour},
		Recovery:  RecoveryOptions{Interval: time.Hour},
		Retention: RetentionOptions{Interval: retainEvery},
		Schedules: ScheduleOptions{Interval: time.Hour},
	}
}

// D26: a plain server, as work starts it, deleted jobs after a day which another server on the same store was told to keep for a week.
// Now the queue has the policy, for all servers.
func TestPlainServerDeletesNothingThatOthersWereToldToKeep(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.finished(3, store.Succeeded)
		w.setPolicy(w.job(ids[0]).Queue, store.Policy{RetainSucceeded: week})
		others := w.enqueue(2, "job", func(j *store.NewJob) { j.Queue = "another" })
		_, err := w.store.Cancel(w.Context(), store.Filter{IDs: others[:1]}, 1)
		require.NoError(w, err)
		a, b := w.start(rare(0)), w.start(rare(0))
		w.wait(25 * time.Hour)
		for _, id := range ids {
			assert.Equal(w, store.Succeeded, w.job(id).State, "after 25 hours")
		}
		assert.Empty(w, w.said("jq: finished jobs deleted"))
		w.wait(week - 24*time.Hour)
		assert.Equal(w, 1, w.total(), "after eight days: the job that is ready")
		lines := w.said("jq: finished jobs deleted")
		require.Len(w, lines, 2)
		assert.Equal(w, "finished as succeeded", lines[0]["queue"])
		assert.Equal(w, week, lines[0]["finished_for"])
		assert.NotContains(w, lines[1], "queue", "of cancelled jobs all queues agree")
		w.stop(a)
		w.stop(b)
	})
}

// A policy that is set while servers work applies from their next deletion on.
func TestPolicyHoldsFromTheNextLookOn(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.finished(1, store.Dead)
		s := w.start(Options{})
		w.wait(2 * time.Hour)
		require.Equal(w, store.Dead, w.job(ids[0]).Phase())
		w.setPolicy(w.job(ids[0]).Queue, store.Policy{RetainDead: time.Hour})
		w.wait(2 * DefaultRetentionInterval)
		assert.Zero(w, w.total())
		w.stop(s)
	})
}

// While the policies cannot be read, nothing is deleted: they might say to keep it.
func TestNothingIsDeletedByPoliciesThatCanNotBeRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.finished(1, store.Succeeded)
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "queues" {
				return fmt.Errorf("no such table")
			}
			return nil
		})
		s := w.start(rare(0), h)
		w.wait(25 * time.Hour)
		assert.Equal(w, 1, w.total())
		assert.Zero(w, h.count("delete"))
		assert.Equal(w, h.count("queues"), w.log.said("jq: the store refused a call"))
		h.let()
		w.wait(2 * DefaultRetentionInterval)
		assert.Zero(w, w.total())
		w.stop(s)
	})
}

// If the store keeps no policies, the defaults apply to all queues, and the log says so.
func TestStoreWithoutPoliciesGoesByTheDefaults(t *testing.T) {
	type ability = func(w *world) store.Store
	for name, c := range map[string]struct {
		of   ability
		says []string
	}{
		"none": {
			func(w *world) store.Store { return struct{ store.Store }{w.store} },
			[]string{"Transactor", "Notifier", "QueueKeeper", "PolicyKeeper", "Registry", "ScheduleKeeper", "GroupKeeper", "Fencer", "Monitor", "ActivityReader"},
		},
		"elsewhere": {func(w *world) store.Store {
			h := w.hook()
			h.every(func(_ context.Context, method string) error {
				if method == "queues" {
					return errors.ErrUnsupported
				}
				return nil
			})
			return h
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.finished(1, store.Succeeded)
				w.finished(1, store.Dead)
				s := w.start(rare(0), c.of(w))
				w.wait(24 * time.Hour)
				assert.Equal(w, 2, w.total())
				w.wait(2 * DefaultRetentionInterval)
				assert.Equal(w, 1, w.total(), "the dead job")
				if c.says != nil {
					lines := w.said("jq: the store lacks abilities")
					require.Len(w, lines, 1)
					assert.Equal(w, c.says, lines[0]["missing"])
				}
				w.stop(s)
			})
		})
	}
}

// A server with a negative interval leaves deletion to others, and says so.
func TestRetentionCanBeLeftToOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.finished(1, store.Succeeded)
		h := w.hook()
		s := w.start(rare(-1), h)
		w.wait(48 * time.Hour)
		assert.Equal(w, 1, w.total())
		assert.Zero(w, h.count("delete"))
		assert.Equal(w, 1, w.log.said("jq: retention is off: finished jobs stay until another server deletes them"))
		other := w.start(Options{})
		w.wait(2 * DefaultRetentionInterval)
		assert.Zero(w, w.total())
		w.stop(s)
		w.stop(other)
	})
}

// A queue whose jobs cannot be deleted does not delay others.
func TestQueueThatFailsKeepsNoOtherWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		w.finished(1, store.Cancelled)
		w.finished(1, store.Succeeded)
		for _, state := range []store.State{store.Cancelled, store.Succeeded} {
			w.setPolicy("finished as "+string(state), store.Policy{RetainSucceeded: time.Hour, RetainCancelled: time.Hour})
		}
		w.setPolicy("third", store.Policy{RetainDead: time.Hour})
		s := w.start(Options{}, sparing{w.store, "finished as cancelled"})
		w.wait(2 * time.Hour)
		assert.Equal(w, 1, w.total())
		assert.Positive(w, w.log.said("jq: the store refused a call"))
		w.stop(s)
	})
}

// sparing deletes nothing in one queue.
type sparing struct {
	witness
	queue string
}

func (s sparing) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	if filter.Queue == s.queue {
		return nil, errors.New("a page is torn")
	}
	return s.witness.Delete(ctx, filter, limit)
}

type witness interface {
	store.Store
	store.PolicyKeeper
}
