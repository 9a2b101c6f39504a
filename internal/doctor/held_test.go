package doctor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/doctor"
	"github.com/seed-ed332417/jq/internal/store"
)

// An ordered is a patient whose queue q is ordered, and whose other queues are not.
type ordered struct{ patient }

func newOrdered(t *testing.T) ordered {
	t.Helper()
	o := ordered{newPatient(t)}
	_, err := o.SetPolicy(t.Context(), "q", store.Policy{Ordered: true})
	require.NoError(t, err)
	return o
}

// add enqueues a job and returns its id.
func (o ordered) add(key string, with ...func(*store.NewJob)) int64 {
	o.Helper()
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte("1"), LimitKey: key, MaxRetries: 10}
	for _, set := range with {
		set(&n)
	}
	added, err := o.Enqueue(o.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(o, err)
	return added[0].ID
}

// claim claims the job, which must be the next one.
func (o ordered) claim(id int64) store.Lease {
	o.Helper()
	claimed, err := o.FetchAndClaim(o.Context(), store.ClaimRequest{Queue: "q", Limit: 1, RetryQuota: 1, Worker: "w", TTL: time.Hour})
	require.NoError(o, err)
	require.Len(o, claimed, 1)
	require.Equal(o, id, claimed[0].ID)
	return claimed[0].Lease()
}

func (o ordered) ack(l store.Lease) {
	o.Helper()
	outcomes, err := o.Ack(o.Context(), []store.Ack{{Lease: l}})
	require.NoError(o, err)
	require.Equal(o, store.StatusOK, outcomes[0].Status)
}

// fail ends the attempt so that the job is claimable again after the delay.
func (o ordered) fail(l store.Lease, form store.Form, delay time.Duration) {
	o.Helper()
	outcomes, err := o.NAck(o.Context(), []store.NAck{{Lease: l, Form: form, Delay: delay, Error: "no"}})
	require.NoError(o, err)
	require.Equal(o, store.StatusOK, outcomes[0].Status)
}

// found returns the findings while all queues have a worker.
func (o ordered) found() map[string]string {
	o.Helper()
	for _, queue := range []string{"q", "other"} {
		o.beatOf(queue, queue)
	}
	return o.findings()
}

func in(delay time.Duration) func(*store.NewJob) { return func(n *store.NewJob) { n.Delay = delay } }

// A job that holds back the later ones of its key for long is named, and why.
func TestHeldKeys(t *testing.T) {
	for name, k := range map[string]struct {
		arrange func(ordered)
		found   string
	}{
		"in flight": {func(o ordered) {
			o.claim(o.add("ada"))
			o.add("ada")
			o.clock.Add(5 * time.Minute)
			o.add("ada", in(time.Second))
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it has been in flight for 5m0s (worker w); 1 job waiting behind it, the oldest for 5m0s"},
		"in flight again": {func(o ordered) {
			o.failing(5)
			o.clock.Add(time.Minute)
			o.claim(1)
			o.clock.Add(time.Second)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it has failed 5 times and has been in flight for 1s (worker w); 1 job waiting behind it, the oldest for 5m1s"},
		"retrying": {func(o ordered) {
			o.failing(1)
			o.clock.Add(time.Minute)
			l := o.claim(1)
			o.clock.Add(4 * time.Minute)
			o.fail(l, store.After, time.Hour)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it has failed 2 times and waits another 1h0m0s for its retry; 1 job waiting behind it, the oldest for 5m0s"},
		"retrying often": {func(o ordered) {
			o.failing(6)
			o.clock.Add(30 * time.Second)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it has failed 6 times and waits another 30s for its retry; 1 job waiting behind it, the oldest for 5m30s"},
		"snoozed": {func(o ordered) {
			o.fail(o.claim(o.add("ada")), store.Snooze, time.Hour)
			o.add("ada")
			o.clock.Add(5 * time.Minute)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it is not due for another 55m0s (no); 1 job waiting behind it, the oldest for 5m0s"},
		"delayed": {func(o ordered) {
			o.add("ada", in(time.Hour))
			o.add("ada", in(2*time.Hour))
			o.add("ada")
			o.add("ada")
			o.clock.Add(5 * time.Minute)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it is not due for another 55m0s; 2 jobs waiting behind it, the oldest for 5m0s"},
		"blocked": {func(o ordered) {
			other := o.add("", func(n *store.NewJob) { n.Queue, n.Delay = "other", time.Hour })
			o.add("ada", func(n *store.NewJob) { n.After = []store.Wait{{ID: other}} })
			o.add("ada")
			o.clock.Add(5 * time.Minute)
		}, "job 2 holds back the later ones of the limit key ada in the ordered queue q: it is blocked by others; 1 job waiting behind it, the oldest for 5m0s"},
		"expired": {func(o ordered) {
			o.add("ada", func(n *store.NewJob) { n.ExpiresAt = o.clock.Now().Add(time.Second) })
			o.add("ada")
			o.clock.Add(time.Second + 5*time.Minute)
		}, "job 1 holds back the later ones of the limit key ada in the ordered queue q: it expired 5m0s ago without being cancelled; 1 job waiting behind it, the oldest for 5m1s"},
		"requeued before others": {func(o ordered) { // a job in flight holds back those with smaller ids as well
			o.fail(o.claim(o.add("ada")), store.Never, 0)
			o.claim(o.add("ada"))
			_, err := o.Requeue(o.Context(), store.Filter{IDs: []int64{1}}, 1)
			require.NoError(o, err)
			o.clock.Add(5 * time.Minute)
		}, "job 2 holds back the later ones of the limit key ada in the ordered queue q: it has been in flight for 5m0s (worker w); 1 job waiting behind it, the oldest for 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrdered(t)
			k.arrange(o)
			assert.Equal(t, map[string]string{"held_keys": k.found}, o.found())
		})
	}
}

// failing adds a job that has failed so many times, once a minute, and one that waits for it.
func (o ordered) failing(times int) {
	id := o.add("ada")
	for i := range times {
		if i > 0 {
			o.clock.Add(time.Minute)
		}
		l := o.claim(id)
		if i == 0 {
			o.add("ada")
		}
		o.fail(l, store.After, time.Minute)
	}
}

// claimSecond adds three jobs, and claims the second one when the first, in flight for five minutes, has ended.
func (o ordered) claimSecond() store.Lease {
	o.Helper()
	l := o.claim(o.add("ada"))
	second := o.add("ada")
	o.clock.Add(time.Second)
	o.add("ada")
	o.clock.Add(5 * time.Minute)
	o.ack(l)
	return o.claim(second)
}

// A key is not held if its jobs only wait for the end of those before them, for workers, or not for long.
func TestKeysThatAreNotHeld(t *testing.T) {
	const full = "the limit key ada of the queue q has as many jobs in flight as its policy allows, the oldest for 0s (job 2 of worker w), and 1 job waiting, the oldest for 5m0s"
	for name, k := range map[string]struct {
		arrange func(ordered)
		found   map[string]string
	}{
		"busy": {func(o ordered) {
			o.claimSecond()
		}, map[string]string{"full_keys": full}},
		"has just failed": {func(o ordered) {
			o.fail(o.claimSecond(), store.After, time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}},
		"requeued": {func(o ordered) {
			l := o.claim(o.add("ada"))
			o.clock.Add(time.Hour)
			o.fail(l, store.Never, 0)
			l = o.claim(o.add("ada"))
			_, err := o.Requeue(o.Context(), store.Filter{IDs: []int64{1}}, 1)
			require.NoError(o, err)
			o.clock.Add(time.Second)
			o.add("ada")
			o.clock.Add(5 * time.Minute)
			o.ack(l)
			o.fail(o.claim(1), store.After, time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}},
		"due": {func(o ordered) {
			o.add("ada")
			o.add("ada", in(time.Hour))
			o.add("ada")
			o.clock.Add(5 * time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 2 jobs waiting, the oldest for 5m0s"}},
		"nobody waits for it": {func(o ordered) {
			o.add("ada")
			o.add("ada", in(time.Hour))
			o.clock.Add(5 * time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}},
		"not for long": {func(o ordered) {
			o.add("ada", in(time.Hour))
			o.clock.Add(5 * time.Minute)
			o.add("ada")
			o.clock.Add(5*time.Minute - time.Second)
		}, map[string]string{}},
		"without a key": {func(o ordered) {
			o.add("", in(time.Hour))
			o.add("")
			o.clock.Add(5 * time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}},
		"not ordered": {func(o ordered) {
			o.add("ada", in(time.Hour))
			o.add("ada")
			_, err := o.SetPolicy(o.Context(), "q", store.Policy{MaxPerKey: 1, Version: 1})
			require.NoError(o, err)
			o.clock.Add(5 * time.Minute)
		}, map[string]string{"slow_queue": "the queue q has 1 job waiting, the oldest for 5m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrdered(t)
			k.arrange(o)
			assert.Equal(t, k.found, o.found())
		})
	}
}

// If a job that no key holds back has waited longest, the queue is slow as well.
func TestHeldKeyOfASlowQueue(t *testing.T) {
	o := newOrdered(t)
	o.claim(o.add("grace"))
	o.add("ada", in(time.Hour))
	o.add("")
	o.clock.Add(time.Second)
	o.add("ada")
	o.clock.Add(time.Second)
	o.add("grace")
	o.clock.Add(5 * time.Minute)
	assert.Equal(t, map[string]string{
		"held_keys":  "2 limit keys of ordered queues are each held back by one job; 2 jobs waiting behind them, the oldest for 5m1s: ada in q (job 2 is not due for another 54m58s), grace in q (job 1 has been in flight for 5m2s (worker w))",
		"slow_queue": "the queue q has 3 jobs waiting, the oldest for 5m2s",
	}, o.found())
}

// A key that is only busy is called full, beside one that is held. What to do is said for the kinds of queues that have such keys.
func TestFullKeysOfOrderedQueues(t *testing.T) {
	o := newOrdered(t)
	l := o.claim(o.add("grace"))
	o.add("grace")
	o.clock.Add(time.Second)
	o.add("grace")
	o.add("ada", in(time.Hour))
	o.add("ada")
	o.clock.Add(5 * time.Minute)
	o.ack(l)
	o.claim(2)
	assert.Equal(t, map[string]string{
		"held_keys": "job 4 holds back the later ones of the limit key ada in the ordered queue q: it is not due for another 55m0s; 1 job waiting behind it, the oldest for 5m0s",
		"full_keys": "the limit key grace of the queue q has as many jobs in flight as its policy allows, the oldest for 0s (job 2 of worker w), and 1 job waiting, the oldest for 5m0s",
	}, o.found())
	const ofOrdered = "an ordered queue runs one job of a key at a time: make its jobs shorter, or use more keys"
	assert.Equal(t, ofOrdered, o.advice("full_keys"))

	_, err := o.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 1, Version: 1})
	require.NoError(t, err)
	const ofLimited = "look for jobs that hold their lease for long, or raise the limit with queues set --max-per-key"
	assert.Equal(t, ofLimited, o.advice("full_keys"))
	assert.NotContains(t, o.found(), "held_keys")
}

// advice returns what the finding says is to be done.
func (o ordered) advice(name string) string {
	o.Helper()
	found, err := doctor.Examine(o.Context(), o.Store, o.clock.Now)
	require.NoError(o, err)
	i := slices.IndexFunc(found, func(f store.Finding) bool { return f.Name == name })
	require.GreaterOrEqual(o, i, 0)
	return found[i].Advice
}

// Few keys are counted, however many are held: those first to which nothing has happened for the longest time.
func TestFewHeldKeysAreCounted(t *testing.T) {
	o := newOrdered(t)
	for i := range 50 {
		key := fmt.Sprintf("key %02d", i)
		o.add(key, in(time.Hour))
		o.add(key)
		o.clock.Add(time.Second)
	}
	o.clock.Add(5 * time.Minute)
	assert.Equal(t, map[string]string{
		"held_keys": "20 limit keys of ordered queues are each held back by one job; 20 jobs waiting behind them, the oldest for 5m50s: " +
			"key 00 in q (job 1 is not due for another 54m10s), key 01 in q (job 3 is not due for another 54m11s), key 02 in q (job 5 is not due for another 54m12s), key 03 in q (job 7 is not due for another 54m13s), key 04 in q (job 9 is not due for another 54m14s), and 15 more",
	}, o.found())
}

// Of many waiting jobs, few are read: a job that holds its key is found only if it is one of the newest.
func TestHeldKeysReadFewJobs(t *testing.T) {
	o := newOrdered(t)
	o.add("ada", in(time.Hour))
	jobs := slices.Repeat([]store.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), LimitKey: "ada"}}, store.MaxItems)
	for range 9 {
		_, err := o.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
	}
	o.clock.Add(5 * time.Minute)
	assert.Contains(t, o.found(), "held_keys")
	_, err := o.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	assert.NotContains(t, o.found(), "held_keys")
}
