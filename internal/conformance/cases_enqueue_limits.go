package conformance

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// refused checks that err names the item and the field of a request that breaks a limit.
func (c *C) refused(err error, item int, field string, what string) {
	var invalid *store.InvalidError
	if !errors.As(err, &invalid) {
		c.Errorf("%s: got error %v, want an InvalidError", what, err)
		return
	}
	c.ErrorIs(err, store.ErrInvalid, "%s", what)
	c.Equal([]any{invalid.Item, invalid.Field}, []any{item, field}, "item and field of the InvalidError for %s", what)
}

// An excess is a new job that goes just beyond one limit, and the field that is wrong with it.
type excess struct {
	what   string
	field  string
	change func(*store.NewJob)
}

// wrongNames break the limit of names, whatever field they stand in.
var wrongNames = map[string]string{
	"256 bytes":          strings.Repeat("x", 256),
	"256 bytes, 128 é":   strings.Repeat("é", 128),
	"NUL inside":         "a\x00b",
	"NUL alone":          "\x00",
	"invalid UTF-8":      "a\xff",
	"a surrogate":        "\xed\xa0\x80",
	"UTF-8 cut short":    "\xe2\x82",
	"an overlong letter": "\xc1\xa1",
}

func beyondLimits() []excess {
	list := []excess{
		{"no queue", "queue", func(n *store.NewJob) { n.Queue = "" }},
		{"no kind", "kind", func(n *store.NewJob) { n.Kind = "" }},
		{"an empty tag", "tags", func(n *store.NewJob) { n.Tags = []string{"t", ""} }},
		{"17 tags", "tags", func(n *store.NewJob) { n.Tags = strings.Split(strings.Repeat("t", 17), "") }},
		{"priority 10", "priority", func(n *store.NewJob) { n.Priority = 10 }},
		{"priority −10", "priority", func(n *store.NewJob) { n.Priority = -10 }},
		{"no payload", "payload", func(n *store.NewJob) { n.Payload = nil }},
		{"an empty payload", "payload", func(n *store.NewJob) { n.Payload = []byte{} }},
		{"a payload of 1 MiB and a byte", "payload", func(n *store.NewJob) { n.Payload = docOf(1<<20 + 1) }},
		{"max_retries −1", "max_retries", func(n *store.NewJob) { n.MaxRetries = -1 }},
		{"max_retries 1,000,001", "max_retries", func(n *store.NewJob) { n.MaxRetries = 1_000_001 }},
		{"jitter −1", "backoff.jitter", func(n *store.NewJob) { n.Backoff.Jitter = -1 }},
		{"jitter 101", "backoff.jitter", func(n *store.NewJob) { n.Backoff.Jitter = 101 }},
		{"a cap below the base", "backoff.cap", func(n *store.NewJob) { n.Backoff.Cap = n.Backoff.Base - 1 }},
		{"a window without a key", "unique_for", func(n *store.NewJob) { n.UniqueFor = time.Hour }},
		{"RunAt and Delay", "delay", func(n *store.NewJob) { n.RunAt, n.Delay = epoch, time.Second }},
		{"RunAt in the year 10000", "run_at", func(n *store.NewJob) { n.RunAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
	}
	for _, text := range []string{"", " ", "{", "{} {}", "{'a':1}", "nil", "01", "\"\xff\"", "\"\xed\xa0\x80\"", "\xef\xbb\xbf{}", "\"a\x00b\"", "\"\n\"", "{}\x00"} {
		list = append(list, excess{"payload " + text, "payload", func(n *store.NewJob) { n.Payload = []byte(text) }})
	}
	for what, name := range wrongNames {
		list = append(list,
			excess{"a queue of " + what, "queue", func(n *store.NewJob) { n.Queue = name }},
			excess{"a kind of " + what, "kind", func(n *store.NewJob) { n.Kind = name }},
			excess{"a tag of " + what, "tags", func(n *store.NewJob) { n.Tags = []string{name} }},
			excess{"a trace of " + what, "trace", func(n *store.NewJob) { n.Trace = name }},
			excess{"a limit key of " + what, "limit_key", func(n *store.NewJob) { n.LimitKey = name }},
			excess{"a unique key of " + what, "unique_key", func(n *store.NewJob) { n.UniqueKey = name }},
		)
	}
	for _, wrong := range []time.Duration{-1, 87_600*time.Hour + 1} {
		list = append(list,
			excess{"delay " + wrong.String(), "delay", func(n *store.NewJob) { n.Delay = wrong }},
			excess{"base " + wrong.String(), "backoff.base", func(n *store.NewJob) { n.Backoff.Base = wrong }},
			excess{"cap " + wrong.String(), "backoff.cap", func(n *store.NewJob) { n.Backoff.Cap = wrong }},
			excess{"timeout " + wrong.String(), "timeout", func(n *store.NewJob) { n.Timeout = wrong }},
			excess{"window " + wrong.String(), "unique_for", func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = "u", wrong }},
		)
	}
	return list
}

// enqueueRefusedBeyond has good items beside the wrong one, of which nothing must be left, their unique keys and the request key
// included. The last item is wrong too, and its key is held: the error is about the first.
func enqueueRefusedBeyond(c *C) {
	holder := c.Enqueue(keyed("held", 0))[0]
	last := plainBut(func(n *store.NewJob) { n.UniqueKey, n.Priority = "held", -10 })
	for i, k := range beyondLimits() {
		at := i % 20
		jobs := append(slices.Repeat([]store.NewJob{plain()}, 20), last)
		jobs[(at+10)%20], jobs[at] = keyed("free", 0), plainBut(k.change)
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: jobs, RequestKey: "r"})
		c.refused(err, at, k.field, "a job with "+k.what)
	}
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), last}})
	c.refused(err, 1, "priority", "a wrong job whose key is held")
	for what, name := range wrongNames {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{keyed("free", 0)}, RequestKey: name})
		c.refused(err, -1, "request_key", "a request key of "+what)
	}
	c.Equal(c.onlyJob().ID, holder, "the only job after the refused calls")
	got := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{keyed("free", 0)}, RequestKey: "r"})
	c.Equal(got, []store.Enqueued{{ID: got[0].ID, State: store.Ready}}, "the answer under the keys of calls that were refused")
}

// onlyJob is the one job of the store.
func (c *C) onlyJob() store.Job {
	all := c.All()
	if len(all) != 1 {
		c.Fatalf("there are %d jobs, want 1", len(all))
	}
	return all[0]
}

func enqueueGrantedAtLimit(c *C) {
	longest := 87_600 * time.Hour
	atLimits := []func(*store.NewJob){
		func(n *store.NewJob) { n.Queue = strings.Repeat("é", 127) + "x" },
		func(n *store.NewJob) { n.Kind = strings.Repeat("k", 255) },
		func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = strings.Repeat("u", 255), longest },
		func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = "a tick", store.Resolution },
		func(n *store.NewJob) { n.Trace = strings.Repeat("t", 255) },
		func(n *store.NewJob) {
			n.Tags = strings.SplitAfter(strings.Repeat(strings.Repeat("t", 254)+",", 15)+"t", ",")
		},
		func(n *store.NewJob) { n.LimitKey = strings.Repeat("l", 255) },
		func(n *store.NewJob) { n.Priority = 9 },
		func(n *store.NewJob) { n.Priority = -9 },
		func(n *store.NewJob) { n.Payload = docOf(1 << 20) },
		func(n *store.NewJob) { n.MaxRetries = 0 },
		func(n *store.NewJob) { n.MaxRetries = 1_000_000 },
		func(n *store.NewJob) { n.Delay = longest },
		func(n *store.NewJob) { n.RunAt = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC) },
		func(n *store.NewJob) { n.Timeout = longest },
		func(n *store.NewJob) { n.Backoff = store.Backoff{Base: longest, Cap: longest, Jitter: 100} },
		func(n *store.NewJob) { n.Backoff = store.Backoff{Cap: longest} },
	}
	var jobs []store.NewJob
	for _, change := range atLimits {
		jobs = append(jobs, plainBut(change))
	}
	c.Equal(len(jobs[5].Tags), 16, "how many tags the job with the most has")
	answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: jobs, RequestKey: strings.Repeat("r", 255)})
	c.OK(err, "Enqueue of jobs at the limits")
	for i, a := range answers {
		got, want := c.Get(a.ID).Job, jobs[i].Row(a.ID, c.Now())
		c.True(bytes.Equal(got.Payload, want.Payload), "the payload of job %d of those at a limit is as it was given", i)
		got.Payload, want.Payload = nil, nil // a mebibyte is too much for a readable difference
		c.Equal(got, want, "job %d of those at a limit", i)
	}
}

// enqueueEightMebibytes fills every field that counts, and lets a call fit to the byte: a store that counts less takes a byte more, and
// one that counts more refuses what fits.
func enqueueEightMebibytes(c *C) {
	fitting := func(more string) store.EnqueueRequest {
		req := store.EnqueueRequest{RequestKey: strings.Repeat("r", 255)}
		for i := range 8 {
			req.Jobs = append(req.Jobs, plainBut(func(n *store.NewJob) {
				n.Tags, n.Trace, n.UniqueKey, n.LimitKey = []string{"t", "tag"}, "trace", string(rune('a'+i)), "limit"
				n.Payload = docOf(1<<20 - len(n.Queue) - len(n.Kind) - len("t"+"tag") - len(n.Trace) - len(n.UniqueKey) - len(n.LimitKey))
			}))
		}
		req.Jobs[3].Payload = append(req.Jobs[3].Payload, more...)
		return req
	}
	_, err := c.Store.Enqueue(c.Ctx, fitting(" "))
	c.refused(err, -1, "call", "a call of 8 MiB and one more byte")
	c.Equal(c.howMany(), 0, "how many jobs the refused call left")

	req := fitting("")
	answers, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "Enqueue of exactly 8 MiB, and a request key")
	for i, a := range answers {
		c.True(bytes.Equal(c.Get(a.ID).Payload, req.Jobs[i].Payload), "payload %d is as it was given", i)
	}
}
