package conformance

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var uniqueCases = append([]Case{
	{"Unique/ManyAtOnceBecomeOne", "A unique key applies across all queues and kinds, and at most one job holds it.", uniqueManyAtOnce},
	{"Unique/LiveJobHoldsItsKeyAndDuplicatesChangeNothing", "A unique key applies across all queues and kinds, and at most one job holds it.\nIf UniqueFor is zero, the job holds its key while it is blocked, ready, in flight or retrying.\nA job whose key is held is a duplicate. The store does not add it, answers with the id of the holder, and leaves all other items unaffected.", uniqueLiveJobHolds},
	{"Unique/KeyIsFreeOnceTheJobHasEnded", "If UniqueFor is zero, the job holds its key while it is blocked, ready, in flight or retrying.", uniqueFreeOnceEnded},
	{"Unique/WindowOutlivesTheJob", "Otherwise the job holds its key for a window of UniqueFor from now, whatever becomes of the job, and no longer.\nA window ends when now reaches its end.", uniqueWindowOutlives},
	{"Unique/DuplicatesInsideOneCall", "This also applies to two items of one call.\nA job whose key is held is a duplicate. The store does not add it, answers with the id of the holder, and leaves all other items unaffected.", uniqueInsideOneCall},
}, replaceCases...)

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

// uniqueManyAtOnce has clients that ask for the same keys, each in another order: stores that lock keys in the order of the items would
// lock each other.
func uniqueManyAtOnce(c *C) {
	const clients, keys = 12, 12
	for round := range 4 {
		window := time.Duration(round%2) * time.Hour
		answers := make([][keys]store.Enqueued, clients)
		c.Parallel(clients, func(client int) {
			key := func(i int) int { return (i*[]int{1, 11, 5, 7}[client%4] + 2*client) % keys }
			jobs := make([]store.NewJob, keys)
			for i := range jobs {
				jobs[i] = keyed(fmt.Sprintf("%d/%d", round, key(i)), window)
			}
			for i, a := range c.answers(jobs...) {
				answers[client][key(i)] = a
			}
		})
		for i := range keys {
			added := 0
			for client := range clients {
				got := answers[client][i]
				want := store.Enqueued{ID: answers[0][i].ID, State: store.Ready, Duplicate: got.Duplicate}
				c.Equal(got, want, "the answer for key %d with a window of %v, to client %d", i, window, client)
				if !got.Duplicate {
					added++
				}
			}
			c.Equal(added, 1, "how many jobs were added with key %d and a window of %v", i, window)
		}
		c.Equal(c.howMany(), (round+1)*keys, "how many jobs there are")
	}
}

func uniqueLiveJobHolds(c *C) {
	id := c.free(keyed("key", 0), "the first job")
	twin := plainBut(func(n *store.NewJob) {
		n.UniqueKey, n.UniqueFor, n.Priority, n.Payload, n.Tags = "key", 10*time.Hour, 9, []byte("1"), []string{"twin"}
		n.MaxRetries, n.Kind, n.Queue, n.Delay = 0, "other", "other", time.Hour
	})
	var lost store.Lease
	for _, step := range []struct {
		what  string
		do    func()
		state store.State
	}{
		{"ready for long", func() { c.Advance(1000 * time.Hour) }, store.Ready},
		{"in flight", func() { lost = c.ClaimOne().Lease() }, store.InFlight},
		{"in flight, its lease expired", func() { c.Advance(ttl) }, store.InFlight},
		{"retrying after an expired lease", func() { c.Recover(1) }, store.Failed},
		{"retrying and due", func() { c.Advance(time.Hour) }, store.Failed},
		{"snoozed", func() { c.NAck(c.ClaimOne().Lease(), store.Snooze, 0, "") }, store.Ready},
		{"released", func() { c.NAck(c.ClaimOne().Lease(), store.Release, 0, "") }, store.Ready},
		{"retrying after NAck", func() { c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom") }, store.Failed},
		{"retrying, after a stale Ack", func() { c.Ack(lost) }, store.Failed},
	} {
		step.do()
		before := c.Get(id)
		c.held(twin, id, step.state, "%s", step.what)
		c.Equal(c.Get(id), before, "the holder, after a duplicate: %s", step.what)
	}
	c.Equal(c.onlyJob().ID, id, "the only job")
}

// keyEndings bring a job in flight to each of its ends.
var keyEndings = map[string]func(c *C, held store.Job){
	"succeeded":       func(c *C, held store.Job) { c.Ack(held.Lease()) },
	"failed for good": func(c *C, held store.Job) { c.NAck(held.Lease(), store.Never, 0, "boom") },
	"cancelled":       func(c *C, held store.Job) { c.Cancel(held.ID) },
	"deleted":         func(c *C, held store.Job) { c.Ack(held.Lease()); c.Delete(held.ID) },
	"dead by an expired lease": func(c *C, held store.Job) {
		for range held.MaxRetries {
			held = c.ClaimAnew(held)
		}
		c.Advance(ttl)
		c.Recover(1)
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

// uniqueInsideOneCall has items whose key was held before, and items whose key an earlier item takes.
func uniqueInsideOneCall(c *C) {
	holder := c.free(keyed("held", 0), "the first job")
	other := plainBut(func(n *store.NewJob) { n.Queue, n.UniqueKey = "other", "a" })
	batch := []store.NewJob{
		plain(), keyed("held", 0), keyed("a", 0), keyed("held", time.Hour), plain(), keyed("b", time.Hour), keyed("a", time.Hour), keyed("b", 0), other,
	}
	twinOf := map[int]int{6: 2, 7: 5, 8: 2} // item by item
	added := []int64{holder}
	got := c.answers(batch...)
	for i, a := range got {
		if first, twin := twinOf[i]; twin {
			c.Equal(a, store.Enqueued{ID: got[first].ID, State: store.Ready, Duplicate: true}, "the answer to item %d, a twin of item %d", i, first)
		} else if batch[i].UniqueKey == "held" {
			c.Equal(a, store.Enqueued{ID: holder, State: store.Ready, Duplicate: true}, "the answer to item %d, whose key is held", i)
		} else {
			c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "the answer to item %d", i)
			c.Equal(c.Get(a.ID).Job, batch[i].Row(a.ID, c.Now()), "the job of item %d", i)
			added = append(added, a.ID)
		}
	}
	c.Equal(ids(c.Claim(10)), added, "all jobs, in the order of enqueueing")
	all := c.answers(keyed("held", 0), keyed("a", 0))
	want := []store.Enqueued{{ID: holder, State: store.InFlight, Duplicate: true}, {ID: got[2].ID, State: store.InFlight, Duplicate: true}}
	c.Equal(all, want, "a call of nothing but duplicates")
	c.Equal(c.howMany(), len(added), "how many jobs there are")
}

// uniqueWindowOutlives also asks for longer windows while one runs, which do not prolong it. The next one runs from its own enqueue.
func uniqueWindowOutlives(c *C) {
	for what, end := range keyEndings {
		id, ends := c.free(keyed(what, 100*time.Hour), "the first job"), c.Now().Add(100*time.Hour)
		c.held(keyed(what, time.Hour), id, store.Ready, "within the window, ready")
		held := c.ClaimOne()
		c.held(keyed(what, time.Hour), id, store.InFlight, "within the window, in flight")
		end(c, held)
		var state store.State
		if what != "deleted" {
			state = c.Get(id).State
		}
		c.held(keyed(what, time.Hour), id, state, "within the window, %s", what)
		c.Advance(time.Hour)
		c.held(keyed(what, 1000*time.Hour), id, state, "within the window, %s long ago", what)
		c.Advance(ends.Sub(c.Now()) - store.Resolution)
		c.held(keyed(what, 0), id, state, "one tick before the end of the window, %s", what)
		c.Advance(store.Resolution)
		next := c.free(keyed(what, store.Resolution), "the window of a job has ended that was %s", what)
		c.held(keyed(what, 0), next, store.Ready, "within a window of one tick")
		c.Advance(store.Resolution)
		c.Cancel(next)
		c.Cancel(c.free(keyed(what, 0), "a window of one tick has ended"))
	}
}
