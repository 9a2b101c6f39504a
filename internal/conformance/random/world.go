package random

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// now is the store's now.
func (r *run) now() time.Time { return store.Truncate(r.clk.Now()) }

// advance moves the clock: by a duration, or to where something begins or ends, or to the microsecond before.
func advance(t *rapid.T) op {
	switch among(t, "by", "to", "to", "before") {
	case "to":
		return op{"advance to the next moment", func(r *run) error { return r.advance(r.untilNext()) }}
	case "before":
		return op{"advance to just before the next moment", func(r *run) error {
			return r.advance(r.untilNext() - store.Resolution)
		}}
	default:
		d := among(t, time.Second, time.Microsecond, 700*time.Nanosecond, 30*time.Second, time.Hour, 23*time.Hour)
		return op{fmt.Sprintf("advance by %v", d), func(r *run) error { return r.advance(d) }}
	}
}

func (r *run) advance(d time.Duration) error {
	if d > 0 {
		r.clk.Add(d)
		r.changed = true
	}
	r.note("%s", r.now().Format(time.TimeOnly+".000000"))
	return nil
}

// untilNext is how long it is until the next job is due, lease expires, or window or request key ends. It is zero if
// nothing lies ahead.
func (r *run) untilNext() time.Duration {
	times := slices.Clone(r.ends)
	for _, j := range r.rows {
		times = append(times, j.Next())
	}
	times = slices.DeleteFunc(times, func(at time.Time) bool { return !at.After(r.now()) })
	if len(times) == 0 {
		return 0
	}
	return slices.MinFunc(times, time.Time.Compare).Sub(r.clk.Now())
}

// able makes a call on both stores that the contract leaves open to a store, where the store has it.
func able[A, T any](r *run, what string, call func(A) (T, error)) (answer T, err error) {
	if _, ok := r.store.(A); !ok {
		return answer, nil
	}
	return both(r, what, func(s store.Store) (T, error) { return call(s.(A)) })
}

// pause stops a queue or lets it go on.
func pause(t *rapid.T) op {
	queue := among(t, "a", "b", "c")
	paused := rarely(t, 3)
	return op{fmt.Sprintf("pause %s: %v", queue, paused), func(r *run) error {
		r.changed = true
		_, err := able(r, "SetPaused and Queues", func(s store.QueueKeeper) ([]store.Queue, error) {
			if err := s.SetPaused(r.ctx, queue, paused); err != nil {
				return nil, err
			}
			return s.Queues(r.ctx)
		})
		return err
	}}
}

// seal seals a group, which mostly is not open, and lists the groups.
func seal(t *rapid.T) op {
	name, filter := drawGroup(t), store.GroupFilter{}
	if rarely(t, 4) {
		filter.OpenFor = among(t, time.Second, time.Hour)
	}
	if rarely(t, 4) {
		filter.Name = drawGroup(t)
	}
	page := store.Page{Limit: among(t, 10, 1, 2)}
	return op{fmt.Sprintf("seal %s, and list groups %+v by %d", name, filter, page.Limit), func(r *run) error {
		_, err := able(r, "SealGroup", func(s store.GroupKeeper) (struct{}, error) { return struct{}{}, s.SealGroup(r.ctx, name) })
		_, err2 := able(r, "Groups", func(s store.GroupKeeper) (all []store.GroupPage, err error) {
			for page := page; len(all) == 0 || page.Cursor != "" && len(all) < 10; {
				part, err := s.Groups(r.ctx, filter, page)
				if err != nil {
					return nil, err
				}
				all, page.Cursor = append(all, part), part.Next
			}
			return all, nil
		})
		return errors.Join(err, err2)
	}}
}

// policy sets the policy of a queue: under the version that it has or another one, and now and then twice.
func policy(t *rapid.T) op {
	queue := among(t, "a", "b", "c")
	sets := store.Policy{RetainSucceeded: drawRetention(t), RetainCancelled: drawRetention(t), RetainDead: drawRetention(t)}
	room := among(t, store.Policy{}, store.Policy{MaxInFlight: 1}, store.Policy{Fair: true}, store.Policy{MaxInFlight: 3, Fair: true})
	keys := among(t, store.Policy{}, store.Policy{MaxPerKey: 1}, store.Policy{MaxPerKey: 2}, store.Policy{Ordered: true})
	sets.MaxInFlight, sets.MaxPerKey, sets.Fair, sets.Ordered = room.MaxInFlight, keys.MaxPerKey, room.Fair, keys.Ordered
	if rarely(t, 4) {
		sets.Rate = among(t, store.Rate{N: 2, Per: time.Second}, store.Rate{N: 3, Per: 10*time.Second + 999})
	}
	off, times := among(t, int64(0), 0, -1, 1), among(t, 1, 2)
	return op{fmt.Sprintf("set the policy of %s to %+v, %d versions off, %d times", queue, sets, off, times), func(r *run) error {
		if r.noKeyLimits {
			sets.MaxPerKey, sets.Fair, sets.Ordered = 0, false, false
		}
		p, err := able(r, "Policy", func(s store.PolicyKeeper) (store.Policy, error) { return s.Policy(r.ctx, queue) })
		sets.Version = p.Version + off
		for range times {
			_, err2 := able(r, "SetPolicy", func(s store.PolicyKeeper) (store.Policy, error) { return s.SetPolicy(r.ctx, queue, sets) })
			err = errors.Join(err, err2)
		}
		_, err2 := able(r, "Queues", func(s store.QueueKeeper) ([]store.Queue, error) { return s.Queues(r.ctx) })
		return errors.Join(err, err2)
	}}
}

func drawRetention(t *rapid.T) time.Duration {
	return among(t, 0, time.Hour, store.KeepForEver, 2*time.Hour+999, 0, time.Minute)
}

// fence raises the epoch.
func fence(t *rapid.T) op {
	req := store.FenceRequest{EndLeases: rarely(t, 2), Epoch: among[int64](t, 0, 0, 2, 3, -1)}
	return op{fmt.Sprintf("fence %+v", req), func(r *run) error {
		epoch, err := able(r, "Fence", func(s store.Fencer) (int64, error) { return s.Fence(r.ctx, req) })
		r.floor = max(r.floor, store.Floor(epoch))
		return err
	}}
}
