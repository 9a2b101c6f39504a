package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var requestKeyCases = []Case{
	{"RequestKey/RepeatReturnsTheFirstAnswer", "A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns the first answer, also after its jobs are gone.", requestKeyRepeatReturnsTheFirstAnswer},
	{"RequestKey/RememberedAfterItsJobsAreGone", "A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns the first answer, also after its jobs are gone.", requestKeyRememberedAfterItsJobsAreGone},
	{"RequestKey/RememberedForADayToTheTick", "A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns the first answer, also after its jobs are gone.", requestKeyRememberedForADayToTheTick},
	{"RequestKey/FirstAnswerKeepsItsDuplicates", "A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns the first answer, also after its jobs are gone.", requestKeyFirstAnswerKeepsItsDuplicates},
	{"RequestKey/ConcurrentFirstCallsAddOneSet", "A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns the first answer, also after its jobs are gone.", requestKeyConcurrentFirstCallsAddOneSet},
	{"RequestKey/OtherJobsUnderTheKeyAreRefused", "Other jobs under the key are ErrInvalid; another trace does not make them others.", requestKeyOtherJobsUnderTheKeyAreRefused},
	{"RequestKey/AnotherTraceIsTheSameRequest", "Other jobs under the key are ErrInvalid; another trace does not make them others.", requestKeyAnotherTrace},
	{"RequestKey/SameMomentInAnotherZoneIsTheSameRequest", "Times have a resolution of one microsecond: times and durations that come in are truncated to it, and times that come out are in UTC.", requestKeySameMomentInAnotherZone},
	{"RequestKey/ConcurrentOtherJobsOneWins", "Other jobs under the key are ErrInvalid; another trace does not make them others.", requestKeyConcurrentOtherJobsOneWins},
	{"RequestKey/RefusedRequestKeepsNoKey", "Enqueue adds jobs, all or none of them, and answers for each in order.", requestKeyRefusedRequestKeepsNoKey},
	{"RequestKey/WithoutOneARepeatAddsMore", "Without a key, a repeat adds the jobs once more.", requestKeyWithoutOneARepeatAddsMore},
	{"RequestKey/LimitsAreKept", "Queue, kind, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.", requestKeyLimitsAreKept},
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

func requestKeyRepeatReturnsTheFirstAnswer(c *C) {
	first := c.asked(request("key"))
	c.Equal(len(c.All()), 3, "jobs after the first call")
	c.changesNothing("a repeat at once", func() { c.Equal(c.asked(request("key")), first, "the answer at once") })

	c.Ack(c.Claim(3)[0].Lease())
	c.Advance(time.Hour)
	c.changesNothing("a repeat after the jobs have moved on", func() {
		c.Equal(c.asked(request("key")), first, "the answer after the jobs have moved on")
	})
}

func requestKeyRememberedAfterItsJobsAreGone(c *C) {
	first := c.asked(request("key"))
	cancelling.on(c, store.Filter{Queue: queue}, 10)
	deleting.on(c, store.Filter{Queue: queue}, 10)
	c.Equal(c.All(), []store.Job{}, "jobs before the repeat")
	c.Equal(c.asked(request("key")), first, "the answer after the jobs are gone")
	c.Equal(c.All(), []store.Job{}, "jobs after the repeat")
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
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
	c.OK(err, "other jobs under the key when its day has passed")
}

func requestKeyFirstAnswerKeepsItsDuplicates(c *C) {
	unique := plainBut(func(n *store.NewJob) { n.UniqueKey = "unique" })
	holder := c.Enqueue(unique)[0]
	l := c.ClaimOne().Lease()
	req := store.EnqueueRequest{Jobs: []store.NewJob{unique, plain(), unique}, RequestKey: "key"}

	first := c.asked(req)
	duplicate := store.Enqueued{ID: holder, State: store.InFlight, Duplicate: true}
	c.Equal(first, []store.Enqueued{duplicate, {ID: first[1].ID, State: store.Ready}, duplicate}, "the first answer")

	c.Ack(l)
	c.Delete(holder)
	c.changesNothing("a repeat when the holder of the unique key is gone", func() {
		c.Equal(c.asked(req), first, "the answer when the holder of the unique key is gone")
	})

	own := store.EnqueueRequest{Jobs: []store.NewJob{unique}, RequestKey: "another"}
	added := c.asked(own)
	c.True(!added[0].Duplicate, "the unique key was free")
	c.Equal(c.asked(own), added, "the answer to a repeat of the call that took the unique key")
}

func requestKeyConcurrentFirstCallsAddOneSet(c *C) {
	for round := range 5 {
		req := request(fmt.Sprintf("key %d", round))
		answers := make([][]store.Enqueued, 10)
		c.Parallel(len(answers), func(i int) {
			var err error
			if answers[i], err = c.Store.Enqueue(c.Ctx, req); err != nil {
				c.Errorf("caller %d: %v", i, err)
			}
		})
		for i := range answers {
			c.Equal(answers[i], answers[0], "the answer to caller %d", i)
		}
		c.Equal(len(c.All()), 3*(round+1), "jobs after ten first calls at once, %d times", round+1)
	}
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

func requestKeyAnotherTrace(c *C) {
	asking := func(trace string) []store.Enqueued {
		return c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plainBut(func(n *store.NewJob) { n.Trace = trace })}, RequestKey: "key"})
	}
	first := asking("of the first call")
	c.Equal(asking("of its repeat"), first, "the answer to a repeat with a trace of its own")
	c.Equal(c.Get(first[0].ID).Trace, "of the first call", "the trace that is kept")
}

func requestKeySameMomentInAnotherZone(c *C) {
	at := epoch.Add(time.Hour)
	asking := func(runAt time.Time) []store.Enqueued {
		job := plainBut(func(n *store.NewJob) { n.RunAt = runAt })
		return c.asked(store.EnqueueRequest{Jobs: []store.NewJob{job}, RequestKey: "key"})
	}
	first := asking(at)
	c.Equal(asking(at.In(time.FixedZone("east", 3600))), first, "the answer in another zone")
	c.Equal(asking(at.Add(999)), first, "the answer within the same microsecond")
	c.Equal(len(c.All()), 1, "jobs")
}

func requestKeyConcurrentOtherJobsOneWins(c *C) {
	const callers = 10
	for round := range 5 {
		key := fmt.Sprintf("key %d", round)
		var won [callers]bool
		c.Parallel(callers, func(i int) {
			job := plainBut(func(n *store.NewJob) { n.Queue, n.Kind = key, fmt.Sprint(i) })
			_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}, RequestKey: key})
			won[i] = err == nil
			if err != nil && !errors.Is(err, store.ErrInvalid) {
				c.Errorf("caller %d: %v, want no error or one that is %v", i, err, store.ErrInvalid)
			}
		})
		jobs := c.List(store.Filter{Queue: key}, 100)
		if len(jobs) != 1 {
			c.Fatalf("%d jobs of different requests under one key, want 1", len(jobs))
		}
		for i := range won {
			c.Equal(won[i], jobs[0].Kind == fmt.Sprint(i), "caller %d got an answer", i)
		}
	}
}

func requestKeyRefusedRequestKeepsNoKey(c *C) {
	wrong := request("key")
	wrong.Jobs[2].Queue = ""
	c.refusesRequest("an invalid job", wrong)
	c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
	c.Equal(len(c.All()), 1, "jobs after a refused call and a good one under one key")
}

func requestKeyWithoutOneARepeatAddsMore(c *C) {
	first, second := c.asked(request("")), c.asked(request(""))
	c.True(second[0].ID > first[2].ID, "the repeat added jobs: %+v after %+v", second, first)
	c.Equal(len(c.All()), 6, "jobs after two calls without a key")
}

func requestKeyLimitsAreKept(c *C) {
	for _, key := range []string{strings.Repeat("x", store.MaxNameBytes+1), "a\x00b", "\xff"} {
		c.refusesRequest("a request key beyond the limits", request(key))
	}
	longest := strings.Repeat("x", store.MaxNameBytes)
	c.Equal(c.asked(request(longest)), c.asked(request(longest)), "two answers under the longest key")
	c.Equal(len(c.All()), 3, "jobs under the longest key")
}
