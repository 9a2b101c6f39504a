package bench

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

func TestPercentilesAreExact(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(i+1))
	}
	for part, want := range map[float64]time.Duration{0: 1, 0.005: 1, 0.0051: 2, 0.5: 100, 0.95: 190, 0.99: 198, 0.991: 199, 1: 200} {
		assert.Equal(t, want, percentile(all, part), "part %v of 1 to 200", part)
	}
	assert.EqualValues(t, 7, percentile([]time.Duration{7}, 0.99))
}

func TestTimesAreInMilliseconds(t *testing.T) {
	var some times
	assert.Empty(t, some.figures(""), "of nothing")
	for _, d := range []time.Duration{4, 1, 3, 2} {
		some.add(d * time.Millisecond)
	}
	assert.Equal(t, []Figure{{"call p50", "ms", 2}, {"call p95", "ms", 4}, {"call p99", "ms", 4}, {"call max", "ms", 4}}, some.figures("call "))
}

// Thirds are of the time, also where no mark lies on their borders.
func TestThirdsOfTheTime(t *testing.T) {
	p := pace{began: time.Unix(0, 0)}
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	p.marks = []mark{
		{at(1), 100}, {at(2), 200}, {at(3), 300}, {at(4), 350}, {at(5), 400}, {at(5.5), 425}, {at(6.5), 450}, {at(7), 450}, {at(8), 450},
	}
	assert.Equal(t, []Figure{
		{"first third", "jobs/s", 100}, {"middle third", "jobs/s", 137.5 / 3}, {"last third", "jobs/s", 12.5 / 3},
		{"last to first", "%", 12.5 / 3},
	}, p.figures(time.Unix(9, 0), 450))
	p.marks = p.marks[1:]
	assert.Empty(t, p.figures(time.Unix(9, 0), 450), "too few marks say nothing")
}

func TestRatesAreComparedWithTheOtherPart(t *testing.T) {
	rated := func(name string, rate float64) Part { return Part{name, []Figure{{Rate, "jobs/s", rate}}} }
	assert.Equal(t, Part{"held", []Figure{{Rate, "jobs/s", 30}, {"rate to free", "%", 75}}}, versus(rated("held", 30), rated("free", 40)))
	assert.Equal(t, rated("held", 30), versus(rated("held", 30), rated("free", 0)), "with nothing there is no ratio")
}

func TestMeanIsOfFiguresThatAllHave(t *testing.T) {
	one := []Figure{{"cpu", "µs/job", 30}, {"first third", "jobs/s", 7}, {Rate, "jobs/s", 10}}
	two := []Figure{{Rate, "jobs/s", 40}, {"cpu", "µs/job", 20}, {"last third", "jobs/s", 7}}
	assert.Equal(t, []Figure{{"cpu", "µs/job", 25}, {Rate, "jobs/s", 25}}, mean([][]Figure{one, two}))
}

func TestSummaryHasMedianAndSpread(t *testing.T) {
	round := func(figures ...Figure) Result {
		return Result{Workload: Drain, Parts: []Part{{Name: "drain", Figures: figures}}}
	}
	three := Summarize([]Result{
		round(Figure{Rate, "jobs/s", 30}), round(Figure{Rate, "jobs/s", 10}, Figure{P50, "ms", 1}), round(Figure{Rate, "jobs/s", 12}),
	})
	assert.Equal(t, Summary{Workload: Drain, Rounds: 3, Parts: []PartSummary{{"drain", []Spread{
		{Rate, "jobs/s", 12, 10, 30}, {P50, "ms", 1, 1, 1},
	}}}}, three)
	two := Summarize([]Result{round(Figure{Rate, "jobs/s", 30}), round(Figure{Rate, "jobs/s", 10})})
	assert.InDelta(t, 20, two.Parts[0].Figures[0].Median, 0)
	assert.Zero(t, Summarize(nil))
}

func TestOptionsHaveDefaultsByWorkload(t *testing.T) {
	o, err := Options{Workload: Latency}.Filled()
	require.NoError(t, err)
	assert.Equal(t, []int{10, -1, 16, 100, 100}, []int{o.Concurrency, o.Buffer, o.Producers, o.Batch, o.Payload})
	o, err = Options{Workload: Backlog, Producers: 3}.Filled()
	require.NoError(t, err)
	assert.Equal(t, []int{1_000_000, 100, 3}, []int{o.Jobs, o.Batch, o.Producers})
}

func TestOptionsThatCanNotBeAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"jq: option workload \"\" is unknown: want one of backlog, continuous, drain, enqueue, fairness, flows, held-snapshot, http, idle, keys, latency, limits": {},
		"jq: option jobs must be 1 to 1000000000":                                {Workload: Drain, Jobs: -1},
		"jq: option batch must be 1 to 1000":                                     {Workload: Enqueue, Batch: 1001},
		"jq: option payload must be 22 to 1048576":                               {Workload: Enqueue, Payload: 21},
		"jq: option payload and batch make a call too large: want 7 MiB at most": {Workload: Enqueue, Payload: 1 << 20, Batch: 8},
		"jq: option rate must let a job be enqueued within the duration":         {Workload: Latency, Rate: 0.01},
		"jq: option duration must be more than 0, and 24h at most":               {Workload: Continuous, Duration: 25 * time.Hour},
		"jq: option jobs must be 100000 at most: all are in flight at once":      {Workload: Idle, Jobs: 100_001},
	} {
		_, err := o.Filled()
		assert.EqualError(t, err, want)
	}
}

// A payload has the length that was asked for, and is read back by number.
func TestPayloadsAreAsLongAsAsked(t *testing.T) {
	assert.JSONEq(t, `{"number":12,"text":"xxxxxx"}`, string(document(12, 29)))
	assert.Len(t, document(7, 1000), 1000)
	assert.JSONEq(t, `{"number":123456789,"text":""}`, string(document(123456789, 22)), "the number is never cut")
}

func TestRemovalBeginsWithTheFirstJob(t *testing.T) {
	var i ids
	assert.EqualValues(t, math.MaxInt64, i.before(), "there are none")
	answer := func(err error, added ...int64) {
		_, _ = i.note(func(context.Context, jq.EnqueueRequest) (list []jq.Enqueued, _ error) {
			for _, id := range added {
				list = append(list, jq.Enqueued{ID: id})
			}
			return list, err
		})(t.Context(), jq.EnqueueRequest{})
	}
	answer(nil, 40, 41)
	answer(nil, 30, 31) // two producers
	assert.EqualValues(t, 29, i.before())
	answer(jq.ErrInDoubt)
	assert.EqualValues(t, 0, i.before(), "jobs may have been added before those that are known")
}
