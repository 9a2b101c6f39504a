package conformance

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceRequestKey = "A request key makes the call safe to repeat. For 24 hours, the same request with the same key adds nothing and returns the first answer, even after its jobs are gone."
	sentenceOtherJobs  = "A request for other jobs under the same request key returns ErrInvalid. Jobs that differ only in their trace do not count as other jobs."
)

var requestKeyCases = []Case{
	{"RequestKey/RepeatReturnsTheFirstAnswer", sentenceRequestKey, requestKeyRepeatReturnsTheFirstAnswer},
	{"RequestKey/RememberedForADayToTheTick", sentenceRequestKey + "\nWithout a request key, a repeated call adds the jobs once more.", requestKeyRememberedForADayToTheTick},
	{"RequestKey/OtherJobsUnderTheKeyAreRefused", sentenceOtherJobs, requestKeyOtherJobsUnderTheKeyAreRefused},
	{"RequestKey/AnotherTraceOrZoneIsTheSameRequest", sentenceOtherJobs + "\n" + sentenceTimes, requestKeySameRequest},
	{"RequestKey/ConcurrentFirstCallsAddOneSet", sentenceRequestKey + "\n" + sentenceOtherJobs, requestKeyConcurrentFirstCalls},
}

// request is an Enqueue of three jobs under the key.
func request(key string) store.EnqueueRequest {
	jobs := []store.NewJob{plain(), plainBut(func(n *store.NewJob) { n.Kind = "k2" }), plainBut(func(n *store.NewJob) { n.Priority = 3 })}
	return store.EnqueueRequest{Jobs: jobs, RequestKey: key}
}

// asked is the answer to the request.
func (c *C) asked(req store.EnqueueRequest) []store.Enqueued {
	answers, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "Enqueue under the request key %q", req.RequestKey)
	return answers
}

// requestKeyRepeatReturnsTheFirstAnswer asks for a job of each kind: a new one, and one whose unique key is held, which is free
// once all jobs are gone.
func requestKeyRepeatReturnsTheFirstAnswer(c *C) {
	unique := keyed("unique", 0)
	holder := c.Enqueue(unique)[0]
	c.ClaimOne()
	req := store.EnqueueRequest{Jobs: []store.NewJob{unique, plain(), unique, plain()}, RequestKey: "key"}
	first := c.asked(req)
	duplicate := store.Enqueued{ID: holder, State: store.InFlight, Duplicate: true}
	c.Equal(first, []store.Enqueued{
		duplicate, {ID: first[1].ID, State: store.Ready}, duplicate, {ID: first[3].ID, State: store.Ready},
	}, "the first answer")
	repeat := func(when string, jobs int) {
		c.changesNothing("a repeat "+when, func() { c.Equal(c.asked(req), first, "the answer %s", when) })
		c.Equal(c.howMany(), jobs, "how many jobs there are, %s", when)
	}
	repeat("at once", 3)
	c.Ack(c.ClaimOne().Lease())
	c.Advance(time.Hour)
	repeat("after the jobs have moved on", 3)
	cancelling.on(c, store.Filter{Queue: queue}, 10)
	deleting.on(c, store.Filter{Queue: queue}, 10)
	repeat("after the jobs are gone", 0)

	own := store.EnqueueRequest{Jobs: []store.NewJob{unique}, RequestKey: "another"}
	added := c.asked(own)
	c.True(!added[0].Duplicate, "the unique key was free")
	c.Equal(c.asked(own), added, "the answer to a repeat of the call that took the unique key")
}

// A repeat does not prolong the day.
func requestKeyRememberedForADayToTheTick(c *C) {
	first := c.asked(request("key"))
	c.Advance(store.RequestKeyLife / 2)
	c.asked(request("key"))
	c.Advance(store.RequestKeyLife/2 - store.Resolution)
	c.Equal(c.asked(request("key")), first, "the answer one tick before a day has passed")
	c.Equal(len(c.All()), 3, "jobs one tick before a day has passed")
	c.Advance(store.Resolution)

	second := c.asked(request("key"))
	c.Equal(len(c.All()), 6, "jobs after a repeat when a day has passed")
	c.True(second[0].ID > first[2].ID, "the jobs of the next day are new: %+v", second)
	c.Equal(c.asked(request("key")), second, "the answer to a repeat on the next day")
	c.Advance(store.RequestKeyLife)
	c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
	c.asked(request(""))
	c.True(c.asked(request(""))[2].ID > second[2].ID, "a call without a request key adds jobs")
	c.Equal(len(c.All()), 13, "jobs after other jobs under the key when its day has passed, and two calls without a key")
}

func requestKeyOtherJobsUnderTheKeyAreRefused(c *C) {
	job := plainBut(func(n *store.NewJob) { n.Tags, n.UniqueKey, n.UniqueFor = []string{"a", "b"}, "unique", time.Hour })
	req := store.EnqueueRequest{Jobs: []store.NewJob{job, plain()}, RequestKey: "key"}
	first := c.asked(req)
	for what, change := range map[string]func(*store.NewJob){
		"queue":       func(n *store.NewJob) { n.Queue = "another" },
		"kind":        func(n *store.NewJob) { n.Kind = "another" },
		"payload":     func(n *store.NewJob) { n.Payload = []byte(`{} `) },
		"priority":    func(n *store.NewJob) { n.Priority = 1 },
		"tags":        func(n *store.NewJob) { n.Tags = []string{"b", "a"} },
		"fewer tags":  func(n *store.NewJob) { n.Tags = nil },
		"run_at":      func(n *store.NewJob) { n.RunAt = epoch.Add(time.Hour) },
		"delay":       func(n *store.NewJob) { n.Delay = store.Resolution },
		"max_retries": func(n *store.NewJob) { n.MaxRetries++ },
		"base":        func(n *store.NewJob) { n.Backoff.Base += store.Resolution },
		"cap":         func(n *store.NewJob) { n.Backoff.Cap += store.Resolution },
		"jitter":      func(n *store.NewJob) { n.Backoff.Jitter++ },
		"timeout":     func(n *store.NewJob) { n.Timeout = time.Second },
		"unique_key":  func(n *store.NewJob) { n.UniqueKey = "another" },
		"limit_key":   func(n *store.NewJob) { n.LimitKey = "another" },
		"unique_for":  func(n *store.NewJob) { n.UniqueFor += store.Resolution },
	} {
		other := job
		change(&other)
		c.refusesRequest(what, store.EnqueueRequest{Jobs: []store.NewJob{other, plain()}, RequestKey: "key"})
	}
	c.refusesRequest("one job less", store.EnqueueRequest{Jobs: req.Jobs[:1], RequestKey: "key"})
	c.refusesRequest("one job more", store.EnqueueRequest{Jobs: append(req.Jobs, plain()), RequestKey: "key"})
	c.refusesRequest("another order", store.EnqueueRequest{Jobs: []store.NewJob{plain(), job}, RequestKey: "key"})
	c.Equal(c.asked(req), first, "the answer to the same request after all that")
}

func (c *C) refusesRequest(what string, req store.EnqueueRequest) {
	c.changesNothing("Enqueue of other jobs under the key", func() {
		answers, err := c.Store.Enqueue(c.Ctx, req)
		c.ErrorIs(err, store.ErrInvalid, "Enqueue under the key with a change: %s", what)
		c.Equal(answers, []store.Enqueued{}, "answers to a refused call")
	})
}

func requestKeySameRequest(c *C) {
	at := epoch.Add(time.Hour)
	asking := func(trace string, runAt time.Time) []store.Enqueued {
		job := plainBut(func(n *store.NewJob) { n.Trace, n.RunAt = trace, runAt })
		return c.asked(store.EnqueueRequest{Jobs: []store.NewJob{job}, RequestKey: "key"})
	}
	first := asking("of the first call", at)
	c.Equal(asking("of its repeat", at), first, "the answer to a repeat with a trace of its own")
	c.Equal(asking("", at.In(time.FixedZone("east", 3600))), first, "the answer in another zone")
	c.Equal(asking("", at.Add(999)), first, "the answer within the same microsecond")
	c.Equal(c.onlyJob().Trace, "of the first call", "the trace that is kept")
}

// requestKeyConcurrentFirstCalls has ten callers at once with the same request, and then with two, of which one wins.
func requestKeyConcurrentFirstCalls(c *C) {
	for round := range 10 {
		key := fmt.Sprintf("key %d", round)
		answers, errs := make([][]store.Enqueued, 10), make([]error, 10)
		c.Parallel(len(answers), func(i int) {
			job := plainBut(func(n *store.NewJob) { n.Queue, n.Priority = key, i%2*round%2 })
			answers[i], errs[i] = c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job, job}, RequestKey: key})
		})
		added := c.List(store.Filter{Queue: key}, 100)
		c.Equal(len(added), 2, "how many jobs ten first calls at once have added")
		want := []store.Enqueued{{ID: added[1].ID, State: store.Ready}, {ID: added[0].ID, State: store.Ready}}
		for i, err := range errs {
			if i%2*round%2 == added[0].Priority {
				c.OK(err, "caller %d, whose request won", i)
				c.Equal(answers[i], want, "the answer to caller %d", i)
			} else {
				c.ErrorIs(err, store.ErrInvalid, "caller %d, whose request did not win", i)
			}
		}
	}
}
