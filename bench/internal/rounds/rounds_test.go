package rounds

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/site"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// A fake is a queue in memory whose counts are changed before they are told. Its clock is that of the test.
type fake struct {
	started func(int64)
	skip    int64 // a job that is never begun, or −1
	lie     func(peer.Counts) peer.Counts

	mu      sync.Mutex
	waiting []int64
	done    int64
	works   bool
	shape   peer.Shape
}

func (f *fake) Enqueue(_ context.Context, load peer.Load) error {
	<-time.After(time.Millisecond * time.Duration(load.Jobs/load.Batch))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shape = load.Shape
	for i := range load.Jobs {
		f.waiting = append(f.waiting, load.First+int64(i))
	}
	if f.works {
		f.workOff()
	}
	return nil
}

func (f *fake) Work(context.Context, int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.works = true
	f.workOff()
	return nil
}

func (f *fake) workOff() {
	for _, number := range f.waiting {
		if number != f.skip {
			f.started(number)
		}
		f.done++
	}
	f.waiting = nil
}

func (f *fake) Count(context.Context) (peer.Counts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := peer.Counts{Unfinished: int64(len(f.waiting)), Finished: f.done}
	if f.lie != nil {
		c = f.lie(c)
	}
	return c, nil
}

func (f *fake) Close(context.Context) error { return nil }

func playFake(t *testing.T, scenario string, f *fake) Result {
	t.Helper()
	p := peer.Peer{Name: "fake", Store: "none", Handlers: 1, Keeps: true}
	p.Open = func(_ context.Context, _ peer.Place, handle peer.Handler) (peer.Queue, error) {
		f.started = handle.Started
		return f, nil
	}
	all := Scenarios()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == scenario })
	duration := time.Second
	if only := all[i].only; only != nil {
		p.Name, p.Store, _ = strings.Cut(only[0], "-")
		duration /= 10
	}
	results, err := Run(t.Context(), &site.Site{}, Options{
		Peers: []peer.Peer{p}, Scenarios: all[i : i+1], Rounds: 1, Jobs: 5000, Duration: duration, Progress: io.Discard,
	})
	require.NoError(t, err)
	require.Len(t, results, 1)
	return results[0]
}

func TestRatesAreJobsByTime(t *testing.T) {
	for scenario, want := range map[string]float64{
		Enqueue1: 1000, Bulk: 1_000_000, // one call takes a millisecond
		Continuous: 2_000_000,
	} {
		bubble.Test(t, func(t *testing.T) {
			r := playFake(t, scenario, &fake{skip: -1})
			require.Empty(t, r.Error, scenario)
			require.InEpsilon(t, want, r.Rate, 0.6, "the rate of %s: %+v", scenario, r)
			require.InEpsilon(t, float64(r.Jobs)/r.Seconds, r.Rate, 1e-9, scenario)
		})
	}
}

func TestLongRunsLastLonger(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := playFake(t, Long, &fake{skip: -1})
		require.Empty(t, r.Error)
		require.InEpsilon(t, 1.2, r.Seconds, 0.1, "of a duration of a tenth of a second")
	})
	for _, s := range Scenarios() {
		if s.longer > 1 {
			require.NotEmpty(t, s.Unfit(peer.Peer{Name: "fake", Store: peer.Postgres}), s.Name)
		}
	}
}

func TestLatencyIsFromTheCallToTheHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := playFake(t, Latency, &fake{skip: -1})
		require.Empty(t, r.Error)
		require.EqualValues(t, 51, r.Jobs, "half a second at 100 jobs a second, and the first one")
		require.Equal(t, []float64{1, 1, 1, 1}, []float64{r.P50, r.P95, r.P99, r.Max})
	})
}

func TestRunsWithoutEveryEndDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		scenario string
		fake     *fake
		want     string
	}{
		"a job is never begun":       {Drain, &fake{skip: 4711}, "4999 of 5000 jobs were begun, and not number 4711"},
		"a job stays unfinished":     {Drain, &fake{skip: -1, lie: func(c peer.Counts) peer.Counts { c.Unfinished++; return c }}, "1 jobs in the store are not finished"},
		"a finished job is missing":  {Drain, &fake{skip: -1, lie: func(c peer.Counts) peer.Counts { c.Finished--; return c }}, "4999 jobs are finished in the store, of 5000"},
		"an enqueued job is missing": {Bulk, &fake{skip: -1, lie: func(c peer.Counts) peer.Counts { c.Unfinished--; return c }}, "jobs were enqueued, and"},
		"late jobs are checked too":  {Continuous, &fake{skip: 2000}, "and not number 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := playFake(t, c.scenario, c.fake)
				require.Contains(t, r.Error, c.want)
			})
		})
	}
}

func TestAnAbsentPeerIsLeftOut(t *testing.T) {
	var opened int
	p := peer.Peer{Name: "fake", Open: func(context.Context, peer.Place, peer.Handler) (peer.Queue, error) {
		opened++
		return nil, &site.Absence{Reason: "it lives elsewhere"}
	}}
	results, err := Run(t.Context(), &site.Site{}, Options{
		Peers: []peer.Peer{p}, Scenarios: Scenarios(), Rounds: 3, Jobs: 1, Duration: time.Second, Progress: io.Discard,
	})
	require.NoError(t, err)
	require.Empty(t, results)
	require.Equal(t, 1, opened, "it is asked once")
}

func TestAFailedPeerDoesNotEndTheOthers(t *testing.T) {
	p := peer.Peer{Name: "fake", Open: func(context.Context, peer.Place, peer.Handler) (peer.Queue, error) {
		return nil, errors.New("no store")
	}}
	results, err := Run(t.Context(), &site.Site{}, Options{
		Peers: []peer.Peer{p, p}, Scenarios: Scenarios()[:1], Rounds: 1, Jobs: 1, Duration: time.Second, Progress: io.Discard,
	})
	require.NoError(t, err)
	require.Len(t, results, 2)
	require.Equal(t, "opening: no store", results[1].Error)
}

func TestQuantiles(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(i + 1)
	}
	got := []float64{quantile(values, 50), quantile(values, 99), quantile([]float64{7}, 99)}
	require.Equal(t, []float64{100, 198, 7}, got)
}

func TestContinuousRunsHaveTheShapeOfTheirScenario(t *testing.T) {
	for scenario, want := range map[string]peer.Shape{Continuous: {}, Big: {Text: 5000}, Failing: {Fails: 10}} {
		bubble.Test(t, func(t *testing.T) {
			f := &fake{skip: -1}
			require.Empty(t, playFake(t, scenario, f).Error)
			require.Equal(t, want, f.shape, scenario)
		})
	}
}

func TestPeersPlayWhatFitsThem(t *testing.T) {
	fits := func(p peer.Peer) (names []string) {
		for _, s := range Scenarios() {
			if s.Unfit(p) == "" {
				names = append(names, s.Name)
			}
		}
		return names
	}
	all := []string{Lone20, Lone20Tx, Lone300, Lone300Tx}
	require.Equal(t, all, fits(peer.Peer{Name: "river-100ms", Store: peer.Postgres, Plays: Lone}))
	require.Subset(t, fits(peer.Peer{Name: "river", Store: peer.Postgres}), append(all, Big, Held, Long))
	require.NotContains(t, fits(peer.Peer{Name: "jq", Store: peer.Memory}), Big)
	require.NotContains(t, fits(peer.Peer{Name: "jq", Store: peer.SQLite}), Lone20)
	for _, s := range Scenarios() {
		require.Contains(t, s.Names(), s.Name)
		require.Equal(t, strings.HasPrefix(s.Name, "lone-"), slices.Contains(s.Names(), Lone), "one name chooses all lone ones")
	}
}
