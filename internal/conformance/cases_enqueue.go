package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var enqueueCases = []Case{
	{"Enqueue/KeepsTheRowAsItWasGiven", "Each becomes ready, due at the later of now and what was asked, with token, attempts and retries 0.", enqueueKeepsTheRow},
	{"Enqueue/ZeroIsTakenAsZero", "Nothing has a default here: what is zero is taken as zero.", enqueueZeroIsTakenAsZero},
	{"Enqueue/DueAtTheLaterOfNowAndWhatWasAsked", "Each becomes ready, due at the later of now and what was asked, with token, attempts and retries 0.", enqueueDueAtTheLater},
	{"Enqueue/KeepsPayloadsByteForByte", "Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, kept byte for byte; all but the payload may be left out.", enqueueKeepsPayloads},
	{"Enqueue/KeepsNamesAsTheyAre", "Queue, kind, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may also be empty.", enqueueKeepsNames},
	{"Enqueue/AnswersForEachInOrder", "Enqueue adds jobs, all or none of them, and answers for each in order.", enqueueAnswersInOrder},
	{"Enqueue/IdsGrow", "Ids grow in the order of the items, and from call to call where calls do not overlap.", enqueueIDsGrow},
	{"Enqueue/IsCommittedBeforeItReturns", "When it returns without an error, its effect is committed: as durable as the adapter says it is.", enqueueIsCommitted},
	{"Enqueue/IsSeenAsAWholeOrNotAtAll", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", enqueueIsSeenAsAWhole},
	{"Enqueue/InvalidItemAnywhereRefusesTheCall", "An invalid one refuses the call: the InvalidError has the index of the first.", enqueueInvalidItemRefuses},
	{"Enqueue/EachLimitIsRefusedJustBeyond", "ErrInvalid: the request breaks a limit and nothing was applied.", enqueueRefusedBeyond},
	{"Enqueue/EachLimitIsGrantedExactly", "A job has at most 16 tags. A priority is −9 to 9. MaxRetries is 0 to 1,000,000. A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than its base, and no time that is asked for lies after the year 9999.", enqueueGrantedAtLimit},
	{"Enqueue/ThousandItemsAndNoMore", "A call has at most 1,000 items and 8 MiB in all, counted over its strings and documents, its request key aside.", enqueueThousandItems},
	{"Enqueue/EightMebibytesAndNoMore", "A call has at most 1,000 items and 8 MiB in all, counted over its strings and documents, its request key aside.", enqueueEightMebibytes},
	{"Enqueue/CallsWithoutItemsDoNothing", "A call without items does nothing.", enqueueEmptyCalls},
	{"Enqueue/KeepsNoSliceThatItWasGiven", "A store keeps no slice that it was given and hands out none that it keeps.", enqueueKeepsNoSlice},
	{"Enqueue/AnswerKeptForARepeatIsNotTheCallers", "A store keeps no slice that it was given and hands out none that it keeps.", enqueueAnswerIsTheCallers},
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
}

func enqueueZeroIsTakenAsZero(c *C) {
	id := c.Enqueue(store.NewJob{Queue: queue, Kind: "k", Payload: []byte("0")})[0]
	want := store.Job{
		ID: id, Queue: queue, Kind: "k", Payload: []byte("0"), State: store.Ready, RunAt: c.Now(), EnqueuedAt: c.Now(),
	}
	c.Equal(c.Get(id).Job, want, "a job of which only the necessary was given")
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

// enqueueKeepsPayloads has what a store would change that parses a document, or keeps it in a type of its own.
func enqueueKeepsPayloads(c *C) {
	payloads := []string{
		"null", "0", `""`, "false", "[]", "{}",
		" \t\r\n{ \"b\" : 1 ,\n\"a\":2 } \n", `{"a":1,"a":2}`, `{"z":1,"a":{"y":[],"b":null}}`,
		"12345678901234567890123456789012345678901234567890", "1.0", "1e400", "-0", "1E+2", "0.1000000000000000055511151231257827",
		`"\u0000"`, `{"\u0000":"\u0000"}`, `"\ud800"`, `"\u003c\u003C<>&\/"`, `"é` + "e\u0301\u2028\u2029\uFFFD\U0001F980\uFEFF" + `"`,
		`"it's 100% \"quoted\" \\ $1 ? :name @p {{x}}"`, "\"\x7f\"", strings.Repeat("[", 500) + strings.Repeat("]", 500),
	}
	var jobs []store.NewJob
	for _, p := range payloads {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Payload = []byte(p) }))
	}
	enqueued := c.Enqueue(jobs...)
	for i, j := range c.Claim(len(jobs)) {
		c.Equal(string(j.Payload), payloads[i], "a claimed payload")
		c.Equal(string(c.Get(enqueued[i]).Payload), payloads[i], "a stored payload")
	}
}

// strangeNames are names that a store might confuse with each other or with something of its own.
var strangeNames = []string{
	"q", "Q", "q ", " q", "q\n", "q%", "q_", "_", "%", "*", "q/*", "é", "e\u0301", "ß", "ss", "İ", "'; --", `"q"`, `\`, "\x01", "\x7f", "null",
	"1", "01", "0x1", "\U0001F980", "\uFFFD", "\uFEFFq", strings.Repeat("q", 254), strings.Repeat("q", 255), strings.Repeat("é", 127) + "q",
}

func enqueueKeepsNames(c *C) {
	var jobs []store.NewJob
	for _, name := range strangeNames {
		jobs = append(jobs, plainBut(func(n *store.NewJob) {
			n.Queue, n.Kind, n.Tags, n.Trace, n.UniqueKey = name, name, []string{name, "t", name}, name, name
		}))
	}
	for i, id := range c.Enqueue(jobs...) {
		c.Equal(c.Get(id).Job, jobs[i].Row(id, c.Now()), "a job whose every name is %q", strangeNames[i])
	}
}

func enqueueAnswersInOrder(c *C) {
	jobs := make([]store.NewJob, 20)
	for i := range jobs {
		jobs[i] = plainBut(func(n *store.NewJob) { n.Priority = i%19 - 9; n.Delay = time.Duration(20-i) * time.Second })
	}
	for i, a := range c.answers(jobs...) {
		c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "answer %d", i)
		c.Equal(c.Get(a.ID).Job, jobs[i].Row(a.ID, c.Now()), "the job of answer %d", i)
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

func enqueueIsCommitted(c *C) {
	c.Parallel(8, func(int) {
		for range 5 {
			mine := c.EnqueueN(3)
			seen := c.List(only(mine...), 10)
			slices.Reverse(seen)
			c.Equal(ids(seen), mine, "the jobs that List has, once Enqueue returned")
			for _, id := range mine {
				c.Equal(c.Get(id).Job, plain().Row(id, c.Now()), "the job that Get has, once Enqueue returned")
			}
		}
	})
	c.Equal(len(c.Claim(store.MaxItems)), 8*5*3, "how many jobs were claimed, once Enqueue returned")
}

func enqueueIsSeenAsAWhole(c *C) {
	const calls, size = 20, 50
	var written atomic.Bool
	c.Parallel(3, func(i int) {
		if i == 0 {
			defer written.Store(true)
			for range calls {
				c.EnqueueN(size)
			}
			return
		}
		for !written.Load() {
			n := c.howMany()
			if n%size != 0 {
				c.Fatalf("%d jobs were seen, of calls with %d each", n, size)
			}
		}
	})
	c.Equal(c.howMany(), calls*size, "how many jobs there are in the end")
}

// howMany is the number of jobs, at most a thousand, in one look.
func (c *C) howMany() int {
	page, err := c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: store.MaxItems})
	c.OK(err, "List")
	return len(page.Jobs)
}

func enqueueEmptyCalls(c *C) {
	before := c.JobIn(store.InFlight)
	for name, call := range map[string]func() (int, error){
		"Enqueue": func() (int, error) {
			got, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{})
			return len(got), err
		},
		"Extend": func() (int, error) { got, err := c.Store.Extend(c.Ctx, nil, ttl); return len(got), err },
		"Save":   func() (int, error) { got, err := c.Store.Save(c.Ctx, nil); return len(got), err },
		"Ack":    func() (int, error) { got, err := c.Store.Ack(c.Ctx, nil); return len(got), err },
		"NAck":   func() (int, error) { got, err := c.Store.NAck(c.Ctx, nil); return len(got), err },
	} {
		n, err := call()
		c.OK(err, "%s without items", name)
		c.Equal(n, 0, "how many answers %s without items has", name)
	}
	c.Equal(c.Get(before.ID), before, "the only job")
	c.Equal(c.howMany(), 1, "how many jobs there are")
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
	saves := []store.Save{{Lease: held, Seq: 1, Checkpoint: []byte(`"saved"`), Progress: []byte(`"seen"`)}}
	_, err := c.Store.Save(c.Ctx, saves)
	c.OK(err, "Save")
	spoil(saves[0].Checkpoint)
	spoil(saves[0].Progress)
	c.Equal(string(c.Get(held.ID).Checkpoint), `"saved"`, "the checkpoint that was overwritten by the caller")
	c.Equal(string(c.Get(held.ID).Progress), `"seen"`, "the progress that was overwritten by the caller")

	acks := []store.Ack{{Lease: held, Result: []byte(`"done"`)}}
	_, err = c.Store.Ack(c.Ctx, acks)
	c.OK(err, "Ack")
	spoil(acks[0].Result)
	c.Equal(string(c.Get(held.ID).Result), `"done"`, "the result that was overwritten by the caller")
}

func spoil(doc []byte) {
	for i := range doc {
		doc[i] = '!'
	}
}

func enqueueAnswerIsTheCallers(c *C) {
	req := store.EnqueueRequest{Jobs: []store.NewJob{plain(), plain()}, RequestKey: "key"}
	first, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "Enqueue with a request key")
	want := slices.Clone(first)
	for range 2 {
		clear(first)
		first, err = c.Store.Enqueue(c.Ctx, req)
		c.OK(err, "Enqueue once more with the same request key")
		c.Equal(first, want, "the first answer, after the caller overwrote the one that it had")
	}
}
