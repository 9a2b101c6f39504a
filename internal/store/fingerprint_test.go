package store

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFingerprintTellsRequestsApart(t *testing.T) {
	base := EnqueueRequest{Jobs: []NewJob{validJob()}, RequestKey: "a"}
	assert.Equal(t, base.Fingerprint(), EnqueueRequest{Jobs: []NewJob{validJob()}, RequestKey: "b"}.Fingerprint(), "the key is no part of it")
	other := validJob()
	other.Priority = 1
	assert.NotEqual(t, base.Fingerprint(), EnqueueRequest{Jobs: []NewJob{other}}.Fingerprint())

	empty, fine := validJob(), validJob()
	empty.Tags, fine.Delay = []string{}, 999*time.Nanosecond
	assert.Equal(t, base.Fingerprint(), EnqueueRequest{Jobs: []NewJob{empty}}.Fingerprint(), "no tags are no tags")
	assert.Equal(t, base.Fingerprint(), EnqueueRequest{Jobs: []NewJob{fine}}.Fingerprint(), "what is finer than the resolution is not kept")
	traced := validJob()
	traced.Trace = "of a repeat"
	assert.Equal(t, base.Fingerprint(), EnqueueRequest{Jobs: []NewJob{traced}}.Fingerprint(), "who asks is no part of what is asked")
	two := EnqueueRequest{Jobs: []NewJob{validJob(), validJob()}}
	assert.NotEqual(t, base.Fingerprint(), two.Fingerprint())

	berlin := validJob()
	berlin.RunAt = noon.In(time.FixedZone("", 3600))
	utc := validJob()
	utc.RunAt = noon
	assert.Equal(t, EnqueueRequest{Jobs: []NewJob{berlin}}.Fingerprint(), EnqueueRequest{Jobs: []NewJob{utc}}.Fingerprint())
}

// Stores keep fingerprints for a day: a program of tomorrow must find the same one.

// TestFingerprintOfWaits is as stores have kept it.
func TestFingerprintOfWaits(t *testing.T) {
	assert.Equal(t, "{7 0 false}", Wait{ID: 7}.String())
	assert.Equal(t, "{0 3 true}", Wait{Item: 3, Any: true}.String())
	assert.Equal(t, `{"g" true}`, Wait{Group: "g", Any: true}.String())
	var all [][32]byte
	for _, req := range []EnqueueRequest{
		{Jobs: []NewJob{{}}}, {Jobs: []NewJob{{Group: "g"}}}, {Jobs: []NewJob{{Group: "h"}}}, {Jobs: []NewJob{{}}, Open: []string{"g"}},
		{Jobs: []NewJob{{After: []Wait{{Group: "g"}}}}}, {Jobs: []NewJob{{After: []Wait{{Group: "g", Any: true}}}}},
	} {
		sum := req.Fingerprint()
		assert.False(t, slices.Contains(all, sum), "%+v", req)
		all = append(all, sum)
	}
}

// TestFingerprintIsAsStoresHaveKeptIt has hashes that an earlier version has computed.
func TestFingerprintIsAsStoresHaveKeptIt(t *testing.T) {
	full := NewJob{
		Queue: "q", Kind: `a "kind"`, Payload: []byte("{\"é\":\"\\n\x01\"}"), Priority: -3, Tags: []string{"a b", `"`}, RunAt: noon, MaxRetries: 7,
		Backoff: Backoff{Base: time.Second, Cap: time.Minute, Jitter: 20}, Timeout: time.Hour, UniqueKey: "k", UniqueFor: 2 * time.Hour,
		Replace: true, ExpiresAt: noon.Add(time.Hour), Group: `g "1"`, After: []Wait{{ID: 7}, {Item: 3, Any: true}, {Group: "h"}},
	}
	for want, req := range map[string]EnqueueRequest{
		"11771e87df3cdcdbcd9500e66f6faff08d18e018d1cd47468a76936ef9bf86cc": {Jobs: []NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), Delay: time.Second}}},
		"ee5658bf02b30072f4a9050ff030bf9b0514f3077c91ef6f82f4e37cff814540": {Jobs: []NewJob{full}},
		"492813b6446ea6ec1f9fbba0b37b41274faa010fc77358fbe402b8331c54669b": {Jobs: []NewJob{{Queue: "q", Kind: "k", Payload: []byte("1")}, full}, Open: []string{"g", `"h"`}},
	} {
		sum := req.Fingerprint()
		assert.Equal(t, want, hex.EncodeToString(sum[:]), "%+v", req)
	}
}

// Fingerprints were made with strconv.Quote, and must stay what they are.
func TestAppendQuotedIsQuote(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		text := make([]byte, random.IntN(12))
		for i := range text {
			text[i] = []byte("ab\"\\ ~\x7f\n\xc3\xa9\xff\x00")[random.IntN(12)]
		}
		require.Equal(t, "x"+strconv.Quote(string(text)), string(appendQuoted([]byte("x"), string(text))))
	}
}

func BenchmarkFingerprint(b *testing.B) {
	n := NewJob{Queue: "bench-1a2b3c4d-batch-1", Kind: "bench", MaxRetries: 20}
	n.Payload, n.Group = []byte(`{"user":12345,"text":"hello there, this is a payload of about one hundred bytes as in P15","n":1}`), "bench-1a2b3c4d-batch-1-0123456789abcdef0123456789"
	req := EnqueueRequest{Jobs: slices.Repeat([]NewJob{n}, 1000)}
	for b.Loop() {
		req.Fingerprint()
	}
}
