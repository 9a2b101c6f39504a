package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var enqueueCases = []Case{
	{"Enqueue/KeepsTheRowAsItWasGiven", "Each job becomes ready, unless it has to wait for others, and is due at the later of now and the requested time. Its token, attempts and retries are 0.\nNo field has a default: a zero field is taken as zero.", enqueueKeepsTheRow},
	{"Enqueue/DueAtTheLaterOfNowAndWhatWasAsked", "Each job becomes ready, unless it has to wait for others, and is due at the later of now and the requested time. Its token, attempts and retries are 0.", enqueueDueAtTheLater},
	{"Enqueue/KeepsPayloadsByteForByte", "Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, and the store must keep them byte for byte. Only the payload is required.", enqueueKeepsPayloads},
	{"Enqueue/KeepsNamesAsTheyAre", "A claim takes jobs only from the queue that it names.\nQueue, kind, group, limit key, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.\nEnqueue adds all of the jobs or none of them, and returns one answer per job, in order.", enqueueKeepsNames},
	{"Enqueue/IdsGrow", "Ids grow in the order of the items, and from one call to the next if the calls do not overlap.", enqueueIDsGrow},
	{"Enqueue/IsCommittedAsAWholeBeforeItReturns", "When a call returns without an error, its effect is committed and is as durable as the adapter promises.\nA call takes effect as a whole, at one moment between its start and its return, or not at all.", enqueueIsCommitted},
	{"Enqueue/EachLimitIsRefusedJustBeyond", "ErrInvalid: the request breaks a limit and nothing was applied.\nIf a job is invalid, Enqueue adds none and returns an InvalidError with the index of the first invalid job.", enqueueRefusedBeyond},
	{"Enqueue/EachLimitIsGrantedExactly", "A job has at most 16 tags. A priority is −9 to 9. MaxRetries is 0 to 1,000,000. A duration is 0 to ten years, a lease or the window of a unique key is at least one microsecond, a jitter is 0 to 100 percent, and a cap is no less than its base. No requested time may lie after the year 9999.", enqueueGrantedAtLimit},
	{"Enqueue/EightMebibytesAndNoMore", "A call has at most 1,000 items, and a call of Fire at most 100. Its strings and documents, without the request key, have at most 8 MiB in all.", enqueueEightMebibytes},
	{"Enqueue/KeepsNoSliceThatItWasGiven", "A store must not keep a slice that it was given, and must not return a slice that it keeps.", enqueueKeepsNoSlice},
}

// enqueueKeepsTheRow spells the row out rather than asking NewJob.Row, so that the two check each other.
func enqueueKeepsTheRow(c *C) {
	at := c.Now()
	id := c.Enqueue(store.NewJob{
		Queue: "mail/out", Kind: "send", Payload: []byte(` {"to": "x"}`), Priority: -3, Tags: []string{"b", "a", "b"},
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Delay: 90 * time.Minute, MaxRetries: 7,
		Backoff: store.Backoff{Base: 2 * time.Second, Cap: 90 * time.Second, Jitter: 25}, Timeout: 5 * time.Minute,
		UniqueKey: "key", UniqueFor: time.Hour,
	})[0]
	c.Advance(time.Second)

	want := store.JobDetail{Job: store.Job{
		ID: id, Queue: "mail/out", Kind: "send", Payload: []byte(` {"to": "x"}`), Priority: -3, Tags: []string{"b", "a", "b"},
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: store.Ready, RunAt: at.Add(90 * time.Minute),
		MaxRetries: 7, Backoff: store.Backoff{Base: 2 * time.Second, Cap: 90 * time.Second, Jitter: 25}, Timeout: 5 * time.Minute,
		UniqueKey: "key", UniqueFor: time.Hour, EnqueuedAt: at,
	}}
	c.Equal(c.Get(id), want, "the enqueued job")
	c.Equal(c.All(), []store.Job{want.Job}, "the list of all jobs")

	id = c.Enqueue(store.NewJob{Queue: queue, Kind: "k", Payload: []byte("0")})[0]
	least := store.Job{ID: id, Queue: queue, Kind: "k", Payload: []byte("0"), State: store.Ready, RunAt: c.Now(), EnqueuedAt: c.Now()}
	c.Equal(c.Get(id).Job, least, "a job of which only the necessary was given")
}

func enqueueDueAtTheLater(c *C) {
	now := c.Now()
	for _, asked := range []struct {
		runAt time.Time
		delay time.Duration
		want  time.Time
	}{
		{want: now},
		{runAt: now, want: now},
		{runAt: now.Add(store.Resolution), want: now.Add(store.Resolution)},
		{runAt: now.Add(-store.Resolution), want: now},
		{runAt: time.Unix(0, 0), want: now},
		{runAt: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), want: now},
		{runAt: now.Add(24 * time.Hour).In(time.FixedZone("", 3600)), want: now.Add(24 * time.Hour)},
		{delay: store.Resolution, want: now.Add(store.Resolution)},
		{delay: 87_600 * time.Hour, want: now.Add(87_600 * time.Hour)},
	} {
		n := plainBut(func(n *store.NewJob) { n.RunAt, n.Delay = asked.runAt, asked.delay })
		got := c.Get(c.Enqueue(n)[0]).Job
		want := plain().Row(got.ID, now)
		want.RunAt = asked.want
		c.Equal(got, want, "a job with RunAt %v and Delay %v", asked.runAt, asked.delay)
	}
}

// oddDocuments are valid, and each is changed by a store that parses what it should only keep, or keeps it in a type of its own.
var oddDocuments = []string{
	"null", "0", `""`, "false", "[]", "{}",
	" \t\r\n{ \"b\" : 1 ,\n\"a\":2 } \n", `{"a":1,"a":2}`, `{"z":1,"a":{"y":[],"b":null}}`,
	"12345678901234567890123456789012345678901234567890", "1.0", "1e400", "-0", "1E+2", "0.1000000000000000055511151231257827",
	`"\u0000"`, `{"\u0000":"\u0000"}`, `"\ud800"`, `"\u003c\u003C<>&\/"`, `"é` + "e\u0301\u2028\u2029\uFFFD\U0001F980\uFEFF" + `"`,
	`"it's 100% \"quoted\" \\ $1 ? :name @p {{x}}"`, "\"\x7f\"", strings.Repeat("[", 500) + strings.Repeat("]", 500),
}

func enqueueKeepsPayloads(c *C) {
	var jobs []store.NewJob
	for _, doc := range oddDocuments {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Payload = []byte(doc) }))
	}
	enqueued := c.Enqueue(jobs...)
	for i, j := range c.Claim(len(jobs)) {
		c.Equal(string(j.Payload), oddDocuments[i], "a claimed payload")
		c.Equal(string(c.Get(enqueued[i]).Payload), oddDocuments[i], "a stored payload")
	}
}

// strangeNames are names that a store might confuse with each other or with something of its own.
var strangeNames = []string{
	"q", "Q", "q ", " q", "q\n", "q%", "q_", "_", "%", "*", "q/*", "é", "e\u0301", "ß", "ss", "İ", "'; --", `"q"`, `\`, "\x01", "\x7f", "null",
	"1", "01", "0x1", "\U0001F980", "\uFFFD", "\uFEFFq", strings.Repeat("q", 254), strings.Repeat("q", 255), strings.Repeat("é", 127) + "q",
}

func enqueueKeepsNames(c *C) {
	var jobs []store.NewJob
	for i, name := range strangeNames {
		jobs = append(jobs, plainBut(func(n *store.NewJob) {
			n.Queue, n.Kind, n.Tags, n.Trace, n.UniqueKey, n.LimitKey = name, name, []string{name, "t", name}, name, name, name
			n.Priority, n.Delay = i%19-9, time.Duration(len(strangeNames)-i)*time.Second
		}))
	}
	answers := c.answers(jobs...)
	for i, a := range answers {
		c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "answer %d", i)
		c.Equal(c.Get(a.ID).Job, jobs[i].Row(a.ID, c.Now()), "the job of answer %d, whose every name is %q", i, strangeNames[i])
	}
	c.Advance(time.Hour)
	for i, name := range strangeNames {
		c.Equal(ids(c.claimFrom(name, store.MaxItems, 0)), []int64{answers[i].ID}, "claimed from queue %q", name)
	}
}

func enqueueIDsGrow(c *C) {
	var all []int64
	for i := range 10 {
		all = append(all, c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.Priority = strings.Repeat("q", i+1), i-5 }))...)
		all = append(all, c.EnqueueN(20)...)
	}
	for i, id := range all {
		if before := all[max(i-1, 0)]; id <= 0 || i > 0 && id <= before {
			c.Errorf("the %dth id is %d, after %d", i, id, before)
		}
	}
	c.Parallel(8, func(int) {
		for range 5 {
			more := c.EnqueueN(10)
			c.True(slices.IsSorted(more) && more[0] > all[len(all)-1], "ids of one call beside others grow: %v, after %d", more, all[len(all)-1])
		}
	})
	c.Equal(len(c.All()), len(all)+8*5*10, "how many jobs there are")
}

// enqueueIsCommitted has readers beside the writers: no reader sees a part of a call, and each writer sees its own jobs at once.
func enqueueIsCommitted(c *C) {
	const writers, calls, size = 4, 10, 20
	var working atomic.Int32
	working.Store(writers)
	c.Parallel(2*writers, func(i int) {
		if i >= writers {
			for working.Load() > 0 {
				n := c.howMany()
				c.True(n%size == 0, "%d jobs were seen, of calls with %d each", n, size)
			}
			return
		}
		defer working.Add(-1)
		for range calls {
			mine := c.EnqueueN(size)
			seen := c.List(only(mine...), size)
			slices.Reverse(seen)
			c.Equal(ids(seen), mine, "the jobs that List has, once Enqueue returned")
			c.Equal(c.Get(mine[0]).Job, plain().Row(mine[0], c.Now()), "the job that Get has, once Enqueue returned")
		}
	})
	c.Equal(len(c.Claim(store.MaxItems)), writers*calls*size, "how many jobs were claimed, once Enqueue returned")
}

// howMany is the number of jobs, at most a thousand, in one look.
func (c *C) howMany() int {
	page, err := c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: store.MaxItems})
	c.OK(err, "List")
	return len(page.Jobs)
}

// enqueueKeepsNoSlice spells out what it expects: a row that was read before could share the slice that is spoiled.
func enqueueKeepsNoSlice(c *C) {
	payload, tags := []byte(`{"a":1}`), []string{"t1", "t2"}
	jobs := []store.NewJob{plainBut(func(n *store.NewJob) { n.Payload, n.Tags = payload, tags }), plain()}
	enqueued := c.Enqueue(jobs...)
	spoil(payload)
	tags[0], jobs[1] = "spoilt", store.NewJob{}

	first := plainBut(func(n *store.NewJob) { n.Payload, n.Tags = []byte(`{"a":1}`), []string{"t1", "t2"} })
	c.Equal(c.Get(enqueued[0]).Job, first.Row(enqueued[0], c.Now()), "the job whose payload and tags were overwritten by the caller")
	c.Equal(c.Get(enqueued[1]).Job, plain().Row(enqueued[1], c.Now()), "the job whose place in the call was overwritten by the caller")

	held := c.ClaimOne().Lease()
	saved, seen, done := []byte(`"saved"`), []byte(`"seen"`), []byte(`"done"`)
	c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: held, Seq: 1, Checkpoint: saved, Progress: seen}}))
	spoil(saved)
	spoil(seen)
	c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: held, Result: done}}))
	spoil(done)
	got := c.Get(held.ID)
	documents := []string{string(got.Checkpoint), string(got.Progress), string(got.Result)}
	c.Equal(documents, []string{`"saved"`, `"seen"`, `"done"`}, "the documents that were overwritten by the caller")

	answer := c.asked(request("key"))
	want := slices.Clone(answer)
	for range 2 {
		clear(answer) // the one that is kept for a repeat is not the caller's
		answer = c.asked(request("key"))
		c.Equal(answer, want, "the first answer, after the caller overwrote the one that it had")
	}
}

func spoil(doc []byte) {
	for i := range doc {
		doc[i] = '!'
	}
}
