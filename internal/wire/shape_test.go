package wire_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Decode refuses mistakes that encoding/json accepts silently.
func TestDecodeTakesNothingInSilence(t *testing.T) {
	const bulk = `{"action":"delete","filter":{"queue":"a",`
	for _, c := range []struct {
		name, body, field, rule string
		into                    any
	}{
		{"Null", ` null`, "body", "must be an object", new(wire.Enqueue)},
		{"NullJobs", `{"jobs":null}`, "jobs", "must be a list", new(wire.Acks)},
		{"NullIDs", bulk + `"ids":null}}`, "ids", "must be a list", new(wire.Bulk)},
		{"NullStates", bulk + `"states": null}}`, "states", "must be a list", new(wire.Bulk)},
		{"NullQueues", `{"queues":null}`, "queues", "must be a list", new(wire.Wakeups)},
		{"NoIDs", bulk + `"ids":[ ]}}`, "ids", "must not be empty: leave it out", new(wire.Bulk)},
		{"NoWaits", `{"jobs":[{"kind":"k","after":[]}]}`, "after", "must not be empty: leave it out", new(wire.Enqueue)},
		{"NullWaits", `{"jobs":[{"kind":"k","after":null}]}`, "after", "must be a list", new(wire.Enqueue)},
		{"ManyWaits", `{"jobs":[{"kind":"k","after":[` + strings.Repeat(`{},`, store.MaxWaits) + `{}]}]}`, "after", "must be at most 64 a job", new(wire.Enqueue)},
		{"WaitOfTwo", `{"jobs":[{"kind":"k","after":[{"id":"1","id":"2"}]}]}`, "id", "must be given once", new(wire.Enqueue)},
		{"WaitForALot", `{"jobs":[{"kind":"k","after":[{"tag":"a"}]}]}`, "tag", "is not known here", new(wire.Enqueue)},
		{"NoStates", bulk + `"states":[]}}`, "states", "must not be empty: leave it out", new(wire.Bulk)},
		{"JobsTwice", `{"jobs":[{"kind":"a"}],"jobs":[{"kind":"b"}]}`, "jobs", "must be given once", new(wire.Enqueue)},
		{"KindTwice", `{"jobs":[{"kind":"a","kind":"b"}]}`, "kind", "must be given once", new(wire.Enqueue)},
		{"PayloadTwice", `{"jobs":[{"kind":"a","payload":{},"payload":[]}]}`, "payload", "must be given once", new(wire.Enqueue)},
		{"OtherCase", `{"jobs":[{"Kind":"a"}]}`, "Kind", "is not known here", new(wire.Enqueue)},
		{"Escaped", `{"jobs":[{"kin\u0064":"a"}]}`, `kin\u0064`, "is not known here", new(wire.Enqueue)},
		{"Quoted", `{"jobs":[{"a\"b":1}]}`, `a\"b`, "is not known here", new(wire.Enqueue)},
		{"Surrogate", `{"jobs":[{"kind":"a","unique_key":"b\ud83d"}]}`, "unique_key", "must not have half of a surrogate pair", new(wire.Enqueue)},
		{"LowFirst", `{"jobs":[{"kind":"\ude00\ud83d"}]}`, "kind", "must not have half of a surrogate pair", new(wire.Enqueue)},
		{"TwoHighs", `{"jobs":[{"kind":"a","payload_text":"\"\ud83d\ud83d\""}]}`, "payload_text", "must not have half of a surrogate pair", new(wire.Enqueue)},
		{"SurrogateInList", `{"jobs":[{"kind":"a","tags":["\ud83dx"]}]}`, "tags", "must not have half of a surrogate pair", new(wire.Enqueue)},
		{"LongName", `{"` + strings.Repeat("a", store.MaxNameBytes+1) + `":1}`, "body", "must have fields that are known here", new(wire.Enqueue)},
		{"LongestName", `{"` + strings.Repeat("a", store.MaxNameBytes) + `":1}`, strings.Repeat("a", store.MaxNameBytes), "is not known here", new(wire.Enqueue)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var invalid *store.InvalidError
			require.ErrorAs(t, wire.Decode([]byte(c.body), c.into), &invalid)
			assert.Equal(t, c.field, invalid.Field)
			assert.Equal(t, c.rule, invalid.Rule)
		})
	}
	for _, body := range []string{
		`{"jobs":[{"kind":"\ud83d\ude00","payload":{"a":1,"a":"\ud83d","B":null}},{"kind":"\\ud83d","tags":[]}]}`,
		`{"jobs":[{"queue":null,"kind":"a","payload":[` + strings.Repeat("{},", 2000) + `{}]}]}`,
		` {"jobs":[]} ` + "\n",
		`{"jobs":[{"kind":"a","payload":null}]}`,
	} {
		require.NoError(t, wire.Decode([]byte(body), new(wire.Enqueue)), body)
	}
}

// Decoding a body of the maximum size costs little memory, whatever it repeats. Three such bodies at once have ended a
// server.
func TestDecodingHasABound(t *testing.T) {
	fill := func(open, one, end string) []byte {
		return []byte(open + strings.Repeat(one, (wire.MaxBody-len(open)-len(end)-len(one))/len(one)) + strings.TrimSuffix(one, ",") + end)
	}
	for name, c := range map[string]struct {
		body []byte
		into any
	}{
		"jobs":        {fill(`{"jobs":[`, `{},`, `]}`), new(wire.Enqueue)},
		"oddName":     {fill(`{"a\"b":1,"jobs":[`, `{},`, `]}`), new(wire.Enqueue)},
		"lists":       {fill(`{"jobs":[`, `[],`, `]}`), new(wire.Enqueue)},
		"keys":        {fill(`{`, `"jobs":[{}],`, `}`), new(wire.Enqueue)},
		"waits":       {fill(`{"jobs":[{"after":[`, `{},`, `]}]}`), new(wire.Enqueue)},
		"acks":        {fill(`{"jobs":[`, `{},`, `]}`), new(wire.Acks)},
		"nacks":       {fill(`{"jobs":[`, `{},`, `]}`), new(wire.NAcks)},
		"checkpoints": {fill(`{"jobs":[`, `{},`, `]}`), new(wire.Checkpoints)},
		"queues":      {fill(`{"queues":[`, `"",`, `]}`), new(wire.Claim)},
		"states":      {fill(`{"filter":{"states":[`, `"",`, `]}}`), new(wire.List)},
		"ids":         {fill(`{"filter":{"ids":[`, `"1",`, `]}}`), new(wire.List)},
		"deep":        {fill(`{"jobs":`, `[`, ``), new(wire.Enqueue)},
		"blanks":      {fill(``, ` `, ``), new(wire.Enqueue)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := wire.Decode(c.body, c.into)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*wire.MaxBody), name)
	}
}

// FuzzShape checks that valid JSON is never called malformed, and that no accepted list is longer than the limit.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{
		`{"jobs":[{"kind":"k","payload":{"a": [1,"]"]},"queue":"q"}]}`, `{"a":{"b":[[],[{}],null,true,-1.5e3,"\\\"\u00e4"]}}`, ` [ ] `, `"\ud83d"`, `{"payload":1}`, `{"a\"b":1,"jobs":[]}`,
		`{"jobs":[` + strings.Repeat(`{},`, 1000) + `{}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var into wire.Enqueue
		err := wire.Decode([]byte(body), &into)
		if err == nil {
			require.True(t, json.Valid([]byte(body)))
			require.LessOrEqual(t, len(into.Jobs), store.MaxItems)
			return
		}
		if json.Valid([]byte(body)) {
			require.NotEqual(t, "body must be JSON", err.Error())
		}
	})
}
