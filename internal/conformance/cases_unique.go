package conformance

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var uniqueCases = []Case{
	{"Unique/FiftyAtOnceBecomeOne", "A unique key is its own scope, over all queues and kinds, and has at most one holder.", uniqueFiftyAtOnce},
	{"Unique/CallsWithTheSameKeysInAnyOrderAgree", "A unique key is its own scope, over all queues and kinds, and has at most one holder.", uniqueKeysInAnyOrder},
	{"Unique/KeyIsItsOwnScope", "A unique key is its own scope, over all queues and kinds, and has at most one holder.", uniqueKeyIsItsOwnScope},
	{"Unique/LiveJobHoldsItsKey", "With UniqueFor zero the job holds its key while it is ready, in flight or retrying.", uniqueLiveJobHolds},
	{"Unique/KeyIsFreeOnceTheJobHasEnded", "With UniqueFor zero the job holds its key while it is ready, in flight or retrying.", uniqueFreeOnceEnded},
	{"Unique/WindowOutlivesTheJob", "Otherwise it holds it for that long from now, whatever becomes of it, and not beyond.", uniqueWindowOutlives},
	{"Unique/WindowEndsToTheMicrosecond", "A window ends when now reaches it.", uniqueWindowIsExact},
	{"Unique/WindowSlidesFromTheEnqueue", "Otherwise it holds it for that long from now, whatever becomes of it, and not beyond.", uniqueWindowSlides},
	{"Unique/WindowAndLiveScopeShareTheKey", "A unique key is its own scope, over all queues and kinds, and has at most one holder.", uniqueScopesShareTheKey},
	{"Unique/DuplicateChangesNothing", "A job whose key is held is a duplicate: it is not added, the answer has the id of the holder, and no other item is touched by it.", uniqueDuplicateChangesNothing},
	{"Unique/OneHeldKeySpoilsNoOtherItemOfTheBatch", "A job whose key is held is a duplicate: it is not added, the answer has the id of the holder, and no other item is touched by it.", uniqueHeldKeySpoilsNothing},
	{"Unique/DuplicatesInsideOneCall", "That goes for two items of one call as well.", uniqueInsideOneCall},
	{"Unique/JobsWithoutAKeyAreNoDuplicates", "Without a key, a repeat adds the jobs once more.", uniqueWithoutKey},
	{"Unique/RefusedCallTakesNoKey", "Enqueue adds jobs, all or none of them, and answers for each in order.", uniqueRefusedCall},
}

// keyed is a plain job with a unique key.
func keyed(key string, window time.Duration) store.NewJob {
	return plainBut(func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = key, window })
}

// answers enqueues the jobs and returns what became of each.
func (c *C) answers(jobs ...store.NewJob) []store.Enqueued {
	answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: jobs})
	c.OK(err, "Enqueue of %d jobs", len(jobs))
	if len(answers) != len(jobs) {
		c.Fatalf("Enqueue of %d jobs: got %d answers", len(jobs), len(answers))
	}
	return answers
}

// held checks that a job with the key is refused as a duplicate of the holder, which is in the state.
func (c *C) held(n store.NewJob, holder int64, state store.State, what string, args ...any) {
	want := []store.Enqueued{{ID: holder, State: state, Duplicate: true}}
	c.Equal(c.answers(n), want, "a job whose key is held: %s", fmt.Sprintf(what, args...))
}

// free checks that a job with the key is added, and returns its id.
func (c *C) free(n store.NewJob, what string, args ...any) int64 {
	answer := c.answers(n)[0]
	c.Equal(answer, store.Enqueued{ID: answer.ID, State: store.Ready}, "a job whose key is free: %s", fmt.Sprintf(what, args...))
	c.Equal(c.Get(answer.ID).Job, n.Row(answer.ID, c.Now()), "the job that was added: %s", fmt.Sprintf(what, args...))
	return answer.ID
}

func uniqueFiftyAtOnce(c *C) {
	for _, window := range []time.Duration{0, time.Hour} {
		key := window.String()
		answers := make([]store.Enqueued, 50)
		c.Parallel(len(answers), func(i int) { answers[i] = c.answers(keyed(key, window))[0] })
		added := 0
		for _, a := range answers {
			want := store.Enqueued{ID: answers[0].ID, State: store.Ready, Duplicate: a.Duplicate}
			c.Equal(a, want, "the answer to one of fifty, with a window of %v", window)
			if !a.Duplicate {
				added++
			}
		}
		c.Equal(added, 1, "how many of fifty were added, with a window of %v", window)
		c.Equal(ids(c.List(store.Filter{UniqueKey: key}, 100)), []int64{answers[0].ID}, "the jobs with the key")
	}
}

// uniqueKeysInAnyOrder would also show stores that lock keys in the order of the items, and so each other.
func uniqueKeysInAnyOrder(c *C) {
	const clients, keys = 6, 12
	for round := range 4 {
		name := func(i int) string { return fmt.Sprintf("%d/%d", round, i) }
		holders := make([][keys]store.Enqueued, clients)
		c.Parallel(clients, func(client int) {
			jobs := make([]store.NewJob, keys)
			key := func(i int) int { return (i*[]int{1, 11, 5, 7, 1, 11}[client] + 2*client) % keys }
			for i := range jobs {
				jobs[i] = keyed(name(key(i)), 0)
			}
			for i, a := range c.answers(jobs...) {
				holders[client][key(i)] = a
			}
		})
		for i := range keys {
			added := 0
			for client := range clients {
				c.Equal(holders[client][i].ID, holders[0][i].ID, "the holder of key %d, as client %d knows it", i, client)
				if !holders[client][i].Duplicate {
					added++
				}
			}
			c.Equal(added, 1, "how many jobs were added with key %d", i)
		}
		c.Equal(c.howMany(), (round+1)*keys, "how many jobs there are")
	}
}

func uniqueKeyIsItsOwnScope(c *C) {
	id := c.free(keyed("key", 0), "the first job")
	other := plainBut(func(n *store.NewJob) {
		n.Queue, n.Kind, n.Payload, n.UniqueKey = "other", "other", []byte("1"), "key"
	})
	c.held(other, id, store.Ready, "in another queue, of another kind")
	for _, name := range strangeNames {
		c.free(keyed(name, 0), "%q, which is no other key", name)
	}
}

func uniqueLiveJobHolds(c *C) {
	id := c.free(keyed("key", 0), "the first job")
	holds := func(state store.State, what string) { c.held(keyed("key", 0), id, state, "%s", what) }
	holds(store.Ready, "ready")
	c.Advance(1000 * time.Hour)
	holds(store.Ready, "ready for long")
	lost := c.ClaimOne()
	holds(store.InFlight, "in flight")
	c.Advance(ttl)
	holds(store.InFlight, "in flight, its lease expired")
	c.Recover(1)
	holds(store.Failed, "retrying after an expired lease")
	c.Advance(time.Hour)
	holds(store.Failed, "retrying and due")
	c.NAck(c.ClaimOne().Lease(), store.Snooze, time.Hour, "")
	holds(store.Ready, "snoozed")
	c.Advance(time.Hour)
	c.NAck(c.ClaimOne().Lease(), store.Release, 0, "")
	holds(store.Ready, "released")
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	holds(store.Failed, "retrying after NAck")
	c.Ack(lost.Lease())
	holds(store.Failed, "retrying, after a stale Ack")
	c.Equal(c.howMany(), 1, "how many jobs there are")
}

// keyEndings bring a job in flight to each of its ends.
var keyEndings = map[string]func(c *C, held store.Job){
	"succeeded": func(c *C, held store.Job) { c.Ack(held.Lease()) },
	"failed for good": func(c *C, held store.Job) {
		c.NAck(held.Lease(), store.Never, 0, "boom")
	},
	"cancelled": func(c *C, held store.Job) { c.Cancel(held.ID) },
	"dead by an expired lease": func(c *C, held store.Job) {
		for range held.MaxRetries {
			held = c.ClaimAnew(held)
		}
		c.Advance(ttl)
		c.Recover(1)
	},
	"deleted": func(c *C, held store.Job) {
		c.Ack(held.Lease())
		c.Delete(held.ID)
	},
}

func uniqueFreeOnceEnded(c *C) {
	for what, end := range keyEndings {
		c.Enqueue(keyed(what, 0))
		end(c, c.ClaimOne())
		next := c.free(keyed(what, 0), "the job before was %s", what)
		c.Cancel(next)
		c.Cancel(c.free(keyed(what, 0), "the job before was cancelled while it was ready"))
	}
}

func uniqueDuplicateChangesNothing(c *C) {
	twin := plainBut(func(n *store.NewJob) {
		n.UniqueKey, n.UniqueFor, n.Priority, n.Payload, n.Tags = "key", 10*time.Hour, 9, []byte("1"), []string{"twin"}
		n.MaxRetries, n.Kind, n.Queue, n.Delay = 0, "other", "other", time.Hour
	})
	for _, window := range []time.Duration{0, time.Hour} {
		id := c.free(keyed("key", window), "the first job")
		c.Advance(time.Second)
		for _, step := range []func(){
			func() {},
			func() { c.ClaimOne() },
			func() { c.NAck(c.Get(id).Lease(), store.After, time.Minute, "boom") },
		} {
			step()
			before := c.Get(id)
			c.held(twin, id, before.State, "by a job that is %s", before.Phase())
			c.Equal(c.Get(id), before, "the holder, after a duplicate")
		}
		c.Cancel(id)
		c.Advance(time.Hour)
	}
	c.Equal(c.howMany(), 2, "how many jobs there are")
}

func uniqueHeldKeySpoilsNothing(c *C) {
	holder := c.free(keyed("held", 0), "the first job")
	batch := []store.NewJob{plain(), keyed("held", 0), keyed("free", 0), keyed("held", time.Hour), plain(), keyed("free too", 0)}
	answers := c.answers(batch...)
	for i, a := range answers {
		if batch[i].UniqueKey == "held" {
			c.Equal(a, store.Enqueued{ID: holder, State: store.Ready, Duplicate: true}, "the answer to duplicate %d", i)
			continue
		}
		c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "the answer to item %d", i)
		c.Equal(c.Get(a.ID).Job, batch[i].Row(a.ID, c.Now()), "the job of item %d", i)
	}
	want := []int64{holder, answers[0].ID, answers[2].ID, answers[4].ID, answers[5].ID}
	c.Equal(ids(c.Claim(10)), want, "all jobs, in the order of enqueueing")
	all := c.answers(keyed("held", 0), keyed("free", 0))
	wantAll := []store.Enqueued{{ID: holder, State: store.InFlight, Duplicate: true}, {ID: answers[2].ID, State: store.InFlight, Duplicate: true}}
	c.Equal(all, wantAll, "a call of nothing but duplicates")
	c.Equal(c.howMany(), 5, "how many jobs there are")
}

func uniqueInsideOneCall(c *C) {
	other := plainBut(func(n *store.NewJob) { n.Queue, n.UniqueKey = "other", "a" })
	got := c.answers(keyed("a", 0), plain(), keyed("b", time.Hour), keyed("a", time.Hour), keyed("b", 0), other)
	first := func(i int) store.Enqueued { return store.Enqueued{ID: got[i].ID, State: store.Ready} }
	twin := func(i int) store.Enqueued {
		return store.Enqueued{ID: got[i].ID, State: store.Ready, Duplicate: true}
	}
	c.Equal(got, []store.Enqueued{first(0), first(1), first(2), twin(0), twin(2), twin(0)}, "answers of a call with twins")
	c.Equal(ids(c.All()), []int64{got[2].ID, got[1].ID, got[0].ID}, "all jobs")
	c.Equal(c.Get(got[0].ID).Job, keyed("a", 0).Row(got[0].ID, c.Now()), "the first of the twins")
}

func uniqueWithoutKey(c *C) {
	for range 3 {
		for _, a := range c.answers(plain(), plain(), plain()) {
			c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "the answer to a job without a key")
		}
	}
	c.Equal(c.howMany(), 9, "how many jobs there are")
}

func uniqueRefusedCall(c *C) {
	wrong := plainBut(func(n *store.NewJob) { n.Payload = nil })
	for _, window := range []time.Duration{0, time.Hour} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{keyed("key", window), wrong}})
		c.refused(err, 1, "payload", "a call with a wrong job")
	}
	c.Equal(c.free(keyed("key", 0), "it was asked for in refused calls only"), c.onlyJob().ID, "the only job")
}
