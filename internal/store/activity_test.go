package store

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHistogramClasses(t *testing.T) {
	var h Histogram
	for i, bound := range histogramBounds {
		if i > 0 {
			require.Greater(t, bound, histogramBounds[i-1])
		}
		h.Add(bound)
		h.Add(bound + 1)
	}
	h.Add(-time.Second)
	h.Add(1000 * time.Hour)
	want := Histogram{}
	for i := range want {
		want[i] = 2
	}
	assert.Equal(t, want, h)
	assert.EqualValues(t, 32, h.Total())
}

func TestQuantileLiesWithinItsClass(t *testing.T) {
	assert.Zero(t, Histogram{}.Quantile(0.5), "of nothing")
	h := Histogram{1: 90, 7: 10} // 90 between 1 and 3 ms, 10 between 1 and 3 s
	assert.Equal(t, 2*time.Millisecond, h.Quantile(0.45))
	assert.Equal(t, 3*time.Millisecond, h.Quantile(0.9))
	assert.Equal(t, 2*time.Second, h.Quantile(0.95))
	assert.Equal(t, 3*time.Second, h.Quantile(1))
	assert.Equal(t, time.Millisecond, h.Quantile(0), "the begin of the first class")
	assert.Equal(t, h.Quantile(1), h.Quantile(7))
	assert.Equal(t, h.Quantile(0), h.Quantile(-1))
	long := Histogram{len(histogramBounds): 5}
	assert.Equal(t, time.Hour, long.Quantile(0.5), "beyond the last bound")
	assert.Equal(t, time.Hour, long.Quantile(0))
	assert.Equal(t, time.Duration(0), Histogram{0: 1}.Quantile(0))
	assert.Equal(t, time.Millisecond, Histogram{0: 1}.Quantile(1))
}

// A store that keeps rows as ActivityRows and Parts say answers as one that keeps every item.
func TestPartsAddUpToTheWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		now := noon.Add(time.Duration(random.Int64N(int64(48 * time.Hour))))
		filter := ActivityFilter{Last: time.Minute + time.Duration(random.Int64N(int64(8*time.Hour)))}
		if random.IntN(2) == 0 {
			filter.Last = MaxFineActivity + time.Duration(random.Int64N(int64(MaxActivity-MaxFineActivity)))
		}
		switch random.IntN(4) {
		case 0:
			filter.By = ByKind
		case 1:
			filter.Kind = "k"
		case 2:
			filter.Step = time.Duration(1+random.IntN(70)) * time.Minute
			if filter.Last > MaxFineActivity {
				filter.Step = time.Duration(1+random.IntN(30)) * time.Hour
			}
		}
		if filter.Check() != nil {
			continue
		}
		checkParts(t, random, filter, now)
	}
}

func checkParts(t *testing.T, random *rand.Rand, filter ActivityFilter, now time.Time) {
	t.Helper()
	kept := map[time.Duration]map[ActivityPart][]ActivityRow{} // by the overall, the width and the begin of a row
	whole, parts := filter.Sum(now), filter.Sum(now)
	for range 50 {
		at := now.Add(-time.Duration(random.Int64N(int64(filter.Last + 2*time.Hour))))
		item := Activity{Queue: "q", Kind: []string{"k", "l"}[random.IntN(2)], Succeeded: 1 + random.Int64N(5)}
		minute := item
		minute.At = AtMultiple(at, time.Minute)
		whole.Add(minute)
		for _, width := range ActivityWidths {
			if !at.After(ActivityKept(width, now)) {
				continue
			}
			for _, row := range ActivityRows([]Activity{item}) {
				if kept[width] == nil {
					kept[width] = map[ActivityPart][]ActivityRow{}
				}
				key := ActivityPart{Overall: row.Overall, Width: width, From: AtMultiple(at, width)}
				kept[width][key] = append(kept[width][key], row)
			}
		}
	}
	for _, part := range filter.Parts(now) {
		for key, rows := range kept[part.Width] {
			if key.Overall != part.Overall || key.From.Before(part.From) || !part.To.IsZero() && !key.From.Before(part.To) {
				continue
			}
			for _, row := range rows {
				row.At = key.From
				parts.Add(row.Activity)
			}
		}
	}
	assert.Equal(t, whole.Page(), parts.Page(), "%+v at %v, parts %+v", filter, now, filter.Parts(now))
}

func TestAtMultipleCountsFromTheEpoch(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 7 * time.Minute, time.Hour, 25 * time.Hour} {
		for _, at := range []time.Time{time.Unix(0, 0), time.Unix(0, -1), time.Unix(-1, 0), noon, noon.Add(-time.Nanosecond)} {
			got := AtMultiple(at, d)
			assert.Zero(t, got.Unix()%int64(d/time.Second))
			assert.False(t, got.After(at), "%v of %v", d, at)
			assert.True(t, got.Add(d).After(at), "%v of %v", d, at)
		}
	}
}

func TestActivityAsJSON(t *testing.T) {
	page := ActivityPage{Now: noon, From: noon.Add(-time.Hour), Step: time.Minute, Spans: []Activity{
		{At: noon, Queue: "q", Kind: "k", Succeeded: 3, Waited: Histogram{1: 2}}, {At: noon.Add(time.Minute), Stale: 1},
	}}
	text, err := json.Marshal(page)
	require.NoError(t, err)
	assert.JSONEq(t, `{"now":"2026-03-01T12:00:00Z","from":"2026-03-01T11:00:00Z","step":"1m0s",`+
		`"bounds":["1ms","3ms","10ms","30ms","100ms","300ms","1s","3s","10s","30s","1m0s","3m0s","10m0s","30m0s","1h0m0s"],`+
		`"spans":[{"at":"2026-03-01T12:00:00Z","queue":"q","kind":"k","succeeded":3,"waited":[0,2,0,0,0,0,0,0,0,0,0,0,0,0,0,0]},`+
		`{"at":"2026-03-01T12:01:00Z","stale":1}]}`, string(text))
	var back ActivityPage
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, page, back)
	text, err = json.Marshal(ActivityPage{Now: noon, From: noon})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"spans":[]`)
}
