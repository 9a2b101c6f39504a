package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func validJob() NewJob { return NewJob{Queue: "q", Kind: "k", Payload: []byte(`null`)} }

// Each row breaks one limit, and stands beside the greatest value that is still good.
func TestEnqueueLimits(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes)
	doc := []byte(`"` + strings.Repeat("x", MaxDocBytes-2) + `"`)
	for _, c := range []struct {
		field     string
		good, bad func(*NewJob)
	}{
		{"queue", func(n *NewJob) { n.Queue = long }, func(n *NewJob) { n.Queue = long + "x" }},
		{"queue", func(n *NewJob) { n.Queue = "ä" }, func(n *NewJob) { n.Queue = "" }},
		{"kind", func(n *NewJob) { n.Kind = long }, func(n *NewJob) { n.Kind = "a\x00b" }},
		{"payload", func(n *NewJob) { n.Payload = doc }, func(n *NewJob) { n.Payload = append(slices.Clip(doc), ' ') }},
		{"payload", func(n *NewJob) { n.Payload = []byte(" 1e999 ") }, func(n *NewJob) { n.Payload = nil }},
		{"payload", func(n *NewJob) { n.Payload = []byte(`"\u0000"`) }, func(n *NewJob) { n.Payload = []byte("\"\xff\"") }},
		{"priority", func(n *NewJob) { n.Priority = 9 }, func(n *NewJob) { n.Priority = 10 }},
		{"priority", func(n *NewJob) { n.Priority = -9 }, func(n *NewJob) { n.Priority = -10 }},
		{"tags", func(n *NewJob) { n.Tags = strings.Fields(strings.Repeat("t ", 16)) }, func(n *NewJob) { n.Tags = strings.Fields(strings.Repeat("t ", 17)) }},
		{"tags", func(n *NewJob) { n.Tags = []string{long} }, func(n *NewJob) { n.Tags = []string{""} }},
		{"trace", func(n *NewJob) { n.Trace = long }, func(n *NewJob) { n.Trace = "\xff" }},
		{"run_at", func(n *NewJob) { n.RunAt = MaxTime.Add(-1) }, func(n *NewJob) { n.RunAt = MaxTime }},
		{"run_at", func(n *NewJob) { n.RunAt = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC) }, func(n *NewJob) { n.RunAt = time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC) }},
		{"delay", func(n *NewJob) { n.Delay = MaxDuration }, func(n *NewJob) { n.Delay = -1 }},
		{"delay", func(n *NewJob) { n.Delay = 1 }, func(n *NewJob) { n.Delay = 1; n.RunAt = noon }},
		{"max_retries", func(n *NewJob) { n.MaxRetries = MaxRetryLimit }, func(n *NewJob) { n.MaxRetries = MaxRetryLimit + 1 }},
		{"backoff.base", func(n *NewJob) { n.Backoff = Backoff{MaxDuration, MaxDuration, 100} }, func(n *NewJob) { n.Backoff.Base = -1 }},
		{"backoff.cap", func(n *NewJob) { n.Backoff = Backoff{1, 1, 0} }, func(n *NewJob) { n.Backoff = Backoff{2, 1, 0} }},
		{"backoff.jitter", func(n *NewJob) { n.Backoff.Jitter = 100 }, func(n *NewJob) { n.Backoff.Jitter = 101 }},
		{"timeout", func(n *NewJob) { n.Timeout = MaxDuration }, func(n *NewJob) { n.Timeout = MaxDuration + 1 }},
		{"unique_key", func(n *NewJob) { n.UniqueKey = long }, func(n *NewJob) { n.UniqueKey = long + "x" }},
		{"unique_for", func(n *NewJob) { n.UniqueKey, n.UniqueFor = "u", Resolution }, func(n *NewJob) { n.UniqueFor = Resolution }},
		{"unique_for", func(n *NewJob) { n.UniqueKey = "u" }, func(n *NewJob) { n.UniqueKey, n.UniqueFor = "u", Resolution-1 }},
	} {
		good, bad := validJob(), validJob()
		c.good(&good)
		c.bad(&bad)
		require.NoError(t, EnqueueRequest{Jobs: []NewJob{good}}.Check(), c.field)
		err := EnqueueRequest{Jobs: []NewJob{validJob(), bad}}.Check()
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid, c.field)
		assert.Equal(t, 1, invalid.Item, c.field)
		assert.Equal(t, c.field, invalid.Field)
		assert.ErrorIs(t, err, ErrInvalid)
	}
}

func TestACallHasLimits(t *testing.T) {
	jobs := make([]NewJob, MaxItems)
	for i := range jobs {
		jobs[i] = validJob()
	}
	assert.NoError(t, EnqueueRequest{Jobs: jobs}.Check())
	assert.ErrorIs(t, EnqueueRequest{Jobs: append(jobs, validJob())}.Check(), ErrInvalid)

	big := validJob()
	big.Payload = []byte(`"` + strings.Repeat("x", MaxDocBytes-2-len("qk")) + `"`) // with queue and kind: 1 MiB
	eight := []NewJob{big, big, big, big, big, big, big, big}
	assert.NoError(t, EnqueueRequest{Jobs: eight}.Check())
	assert.NoError(t, EnqueueRequest{Jobs: eight, RequestKey: "r"}.Check(), "the request key counts for nothing")
	eight[7].Tags = []string{"t"}
	assert.ErrorIs(t, EnqueueRequest{Jobs: eight}.Check(), ErrInvalid)
}

func TestRefusedResultsAndCutErrorsCountForNothing(t *testing.T) {
	huge := []byte(strings.Repeat(" ", MaxCallBytes+1))
	assert.NoError(t, CheckAcks([]Ack{{Result: huge}}))
	assert.NotNil(t, Ack{Result: huge}.Refused())
	assert.NotNil(t, Ack{Result: []byte("{")}.Refused())
	assert.Nil(t, Ack{}.Refused())
	assert.NoError(t, CheckNAcks([]NAck{{Error: string(huge)}}))
}

func TestErrorTextsAreMadeFit(t *testing.T) {
	assert.Equal(t, "a\uFFFDb\uFFFDc", CleanError("a\x00b\xff\xfec"))
	whole := strings.Repeat("x", MaxErrorBytes)
	assert.Equal(t, whole, CleanError(whole))
	for _, text := range []string{whole + "x", strings.Repeat("ä", MaxErrorBytes), strings.Repeat("\xff ", MaxErrorBytes)} {
		cut := CleanError(text)
		assert.LessOrEqual(t, len(cut), MaxErrorBytes)
		assert.True(t, utf8.ValidString(cut))
		assert.True(t, strings.HasSuffix(cut, cutMark))
		assert.Equal(t, cut, CleanError(cut), "mending twice is mending once")
	}
}

func TestFormsOfNAck(t *testing.T) {
	for _, n := range []NAck{{Form: Fail}, {Form: Never}, {Form: After, Delay: MaxDuration}, {Form: Snooze, Delay: 1}, {Form: Release}} {
		assert.NoError(t, n.Check(), "%+v", n)
	}
	for _, n := range []NAck{{}, {Form: "later"}, {Form: Fail, Delay: 1}, {Form: Release, Delay: 1}, {Form: After, Delay: -1}, {Form: Snooze, Delay: MaxDuration + 1}} {
		assert.ErrorIs(t, n.Check(), ErrInvalid, "%+v", n)
	}
}

func TestClaimLimits(t *testing.T) {
	good := ClaimRequest{Queue: "q", Worker: "w", Limit: MaxItems, RetryQuota: MaxItems, TTL: Resolution}
	assert.NoError(t, good.Check())
	for _, bad := range []ClaimRequest{
		{}, {Queue: "q", Limit: 1, TTL: 1}, {Queue: "q", Worker: "w", Limit: 0, TTL: time.Second},
		{Queue: "q", Worker: "w", Limit: MaxItems + 1, TTL: time.Second}, {Queue: "q", Worker: "w", Limit: 1, RetryQuota: 2, TTL: time.Second},
		{Queue: "q", Worker: "w", Limit: 1, RetryQuota: -1, TTL: time.Second}, {Queue: "q", Worker: "w", Limit: 1, TTL: Resolution - 1},
	} {
		assert.ErrorIs(t, bad.Check(), ErrInvalid, "%+v", bad)
	}
}

func TestFingerprintStaysWhatItIs(t *testing.T) {
	full := NewJob{
		Queue: "q", Kind: "k", Payload: []byte(`{"a":1}`), Priority: -3, Tags: []string{"x", "y z"}, Trace: "t", RunAt: noon,
		MaxRetries: 4, Backoff: Backoff{Base: time.Second, Cap: time.Hour, Jitter: 20}, Timeout: time.Minute, UniqueKey: "u", UniqueFor: time.Hour,
	}
	assert.Equal(t, "7dd527750e3ac0fb426b3cc08f10f262c5a218715abbe881de1dae634673c4bd", fmt.Sprintf("%x", EnqueueRequest{Jobs: []NewJob{full, validJob()}}.Fingerprint()))
}

func TestInvalidErrorIsOneLine(t *testing.T) {
	assert.EqualError(t, EnqueueRequest{Jobs: []NewJob{{}}}.Check(), "jq: invalid: item 0: queue must not be empty")
	assert.EqualError(t, RecoverRequest{}.Check(), "jq: invalid: limit must be 1 to 1000")
}

func TestOutcomesAsErrors(t *testing.T) {
	for status, want := range map[Status]error{
		StatusOK: nil, StatusBusy: nil, StatusFinished: nil, StatusStale: ErrStaleLease, StatusNotFound: ErrNotFound,
		StatusInvalid: ErrInvalid, StatusCancelled: ErrState, StatusWrongState: ErrState, StatusDuplicate: ErrDuplicate,
	} {
		assert.ErrorIs(t, Outcome{Status: status}.Err(), want, status)
	}
}

func TestFitOneCall(t *testing.T) {
	large := NewJob{Payload: []byte(strings.Repeat("x", MaxCallBytes/8))}
	waits := NewJob{After: make([]Wait, MaxCallWaits/4)}
	for name, c := range map[string]struct {
		jobs []NewJob
		want int
	}{
		"none": {nil, 0}, "all": {make([]NewJob, MaxItems), MaxItems}, "jobs": {make([]NewJob, MaxItems+1), MaxItems},
		"bytes": {[]NewJob{large, large, large, large, {Queue: "q"}}, 4}, "waits": {[]NewJob{waits, waits, waits, waits, waits}, 4},
		"too large by itself": {[]NewJob{{Payload: make([]byte, MaxCallBytes/2+1)}, {}}, 1},
	} {
		assert.Equal(t, c.want, FitOneCall(c.jobs), name)
	}
}

// A store that keeps no groups, or no waits, refuses the first item that needs them.
func TestStoresRefuseWhatTheyDoNotKeep(t *testing.T) {
	waits, waitsForGroup, member := validJob(), validJob(), validJob()
	waits.After, waitsForGroup.After, member.Group = []Wait{{ID: 1}}, []Wait{{ID: 1}, {Group: "g"}}, "g"
	require.NoError(t, RefuseGroups(EnqueueRequest{Jobs: []NewJob{validJob(), waits}}))
	require.NoError(t, RefuseWaits(EnqueueRequest{Jobs: []NewJob{validJob()}}))
	for _, c := range []struct {
		refuse func(EnqueueRequest) error
		req    EnqueueRequest
		want   string
	}{
		{RefuseGroups, EnqueueRequest{Jobs: []NewJob{member}, Open: []string{"g"}}, "jq: invalid: open must be empty: this store keeps no groups"},
		{RefuseGroups, EnqueueRequest{Jobs: []NewJob{validJob(), member, waitsForGroup}}, "jq: invalid: item 1: group must be empty: this store keeps no groups"},
		{RefuseGroups, EnqueueRequest{Jobs: []NewJob{waits, waitsForGroup}}, "jq: invalid: item 1: after must name no group: this store keeps none"},
		{RefuseWaits, EnqueueRequest{Jobs: []NewJob{validJob(), waits}}, "jq: invalid: item 1: after must be empty: this store can not let jobs wait for others"},
		{RefuseWaits, EnqueueRequest{Jobs: []NewJob{member}}, "jq: invalid: item 0: group must be empty: this store keeps no groups"},
	} {
		assert.EqualError(t, c.refuse(c.req), c.want)
	}
}

// What a reader should do differs: others may be in the way, or what it asked for is too much.
func TestAnOverlongErrorSaysWhatToDo(t *testing.T) {
	assert.Contains(t, (&OverlongError{Limit: time.Second, Waited: true}).Error(), "have kept this one waiting for 1s: let fewer run at once")
	assert.Contains(t, (&OverlongError{Limit: time.Second}).Error(), "the reading took longer than 1s: narrow its filter")
}
