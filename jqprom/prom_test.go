package jqprom_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/jqprom"
)

type welcome struct{ Name string }

func (welcome) Kind() string { return "welcome" }

// wait lets virtual time pass.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// scraped is the metrics of that name as Prometheus would read them, without the words.
func scraped(t *testing.T, m *jqprom.Metrics, names ...string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, f := range families {
		for _, name := range names {
			if f.GetName() != name {
				continue
			}
			for _, one := range f.GetMetric() {
				var labels []string
				for _, l := range one.GetLabel() {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				value := one.GetCounter().GetValue() + one.GetGauge().GetValue()
				if h := one.GetHistogram(); h != nil {
					value = h.GetSampleSum()
				}
				fmt.Fprintf(&text, "%s{%s} %v\n", name, strings.Join(labels, ","), value)
			}
		}
	}
	return text.String()
}

func TestMetricsTellWhatHappened(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := jq.NewMemory(nil)
		m := jqprom.New(store, nil)
		client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{m.Enqueue}})
		enqueue := func(name string, o jq.EnqueueOptions) {
			_, err := client.Enqueue(t.Context(), welcome{name}, &o)
			require.NoError(t, err)
		}
		enqueue("ok", jq.EnqueueOptions{UniqueKey: "once"})
		enqueue("ok", jq.EnqueueOptions{UniqueKey: "once"})
		enqueue("retry", jq.EnqueueOptions{})
		enqueue("never", jq.EnqueueOptions{})
		enqueue("snooze", jq.EnqueueOptions{})
		enqueue("other", jq.EnqueueOptions{Queue: "other"})
		wait(3 * time.Second)

		var handlers jq.Handlers
		jq.Handle(&handlers, func(_ context.Context, _ *jq.Run, w welcome) error {
			<-time.After(time.Second / 2)
			switch w.Name {
			case "retry":
				return jq.RetryAfter(time.Hour, errors.New("later"))
			case "never":
				return jq.Never(errors.New("no"))
			case "snooze":
				return jq.Snooze(time.Hour)
			}
			return nil
		})
		server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Observer: m})
		require.NoError(t, err)
		m.Watch(server)
		require.NoError(t, server.Start(t.Context()))
		synctest.Wait()
		assert.Equal(t, "jq_worker_slots{state=abandoned} 0\njq_worker_slots{state=idle} 6\njq_worker_slots{state=running} 4\n", scraped(t, m, "jq_worker_slots"))
		wait(10 * time.Second)

		assert.Equal(t, `jq_heartbeat_failures_total{} 0
jq_job_run_seconds{kind=welcome,queue=default} 2
jq_job_wait_seconds{kind=welcome,queue=default} 12
jq_jobs{queue=default,state=blocked} 0
jq_jobs{queue=default,state=dead} 1
jq_jobs{queue=default,state=in_flight} 0
jq_jobs{queue=default,state=ready} 1
jq_jobs{queue=default,state=retrying} 1
jq_jobs{queue=other,state=blocked} 0
jq_jobs{queue=other,state=dead} 0
jq_jobs{queue=other,state=in_flight} 0
jq_jobs{queue=other,state=ready} 1
jq_jobs{queue=other,state=retrying} 0
jq_jobs_claimed_total{queue=default} 4
jq_jobs_enqueued_total{kind=welcome,queue=default} 4
jq_jobs_enqueued_total{kind=welcome,queue=other} 1
jq_jobs_finished_total{kind=welcome,outcome=dead,queue=default} 1
jq_jobs_finished_total{kind=welcome,outcome=retrying,queue=default} 1
jq_jobs_finished_total{kind=welcome,outcome=snoozed,queue=default} 1
jq_jobs_finished_total{kind=welcome,outcome=succeeded,queue=default} 1
jq_queue_oldest_ready_seconds{queue=default} 0
jq_queue_oldest_ready_seconds{queue=other} 13
jq_store_up{} 1
`, scraped(t, m, "jq_heartbeat_failures_total", "jq_job_run_seconds", "jq_job_wait_seconds", "jq_jobs", "jq_jobs_claimed_total", "jq_jobs_enqueued_total",
			"jq_jobs_finished_total", "jq_queue_oldest_ready_seconds", "jq_store_up"))

		const rare = `jq_heartbeat_failures_total{} 0
jq_http_refused_total{reason=forbidden} 0
jq_http_refused_total{reason=unauthorized} 0
jq_leases_recovered_total{outcome=dead} 0
jq_leases_recovered_total{outcome=retrying} 0
jq_stale_writes_rejected_total{op=ack} 0
jq_stale_writes_rejected_total{op=confirm} 0
jq_stale_writes_rejected_total{op=extend} 0
jq_stale_writes_rejected_total{op=nack} 0
jq_stale_writes_rejected_total{op=save} 0
`
		assert.Equal(t, rare, scraped(t, m, "jq_heartbeat_failures_total", "jq_http_refused_total", "jq_leases_recovered_total",
			"jq_stale_writes_rejected_total"), "0 before the first, so that Prometheus sees an increase")
		m.BeatFailed()
		m.StaleWrite("ack")
		m.Refused("unauthorized")
		m.Settled([]jq.Settled{{ID: 1, Queue: "default", Kind: "welcome", Expired: true}, {ID: 2, Queue: "default", Kind: "welcome"}})
		m.Recovered([]jq.Recovered{{ID: 1}, {ID: 2, Next: time.Now()}})
		assert.Equal(t, `jq_heartbeat_failures_total{} 1
jq_http_refused_total{reason=forbidden} 0
jq_http_refused_total{reason=unauthorized} 1
jq_jobs_expired_total{kind=welcome,queue=default} 1
jq_leases_recovered_total{outcome=dead} 1
jq_leases_recovered_total{outcome=retrying} 1
jq_stale_writes_rejected_total{op=ack} 1
jq_stale_writes_rejected_total{op=confirm} 0
jq_stale_writes_rejected_total{op=extend} 0
jq_stale_writes_rejected_total{op=nack} 0
jq_stale_writes_rejected_total{op=save} 0
`, scraped(t, m, "jq_heartbeat_failures_total", "jq_http_refused_total", "jq_jobs_expired_total", "jq_leases_recovered_total", "jq_stale_writes_rejected_total"))
		problems, err := testutil.CollectAndLint(m)
		require.NoError(t, err)
		assert.Empty(t, problems)
		require.NoError(t, server.Stop(t.Context()))
		require.NoError(t, store.Close())
	})
}

// watched is a store of which a test can hold calls up.
type watched struct {
	*jq.MemoryStore

	counted atomic.Int64
	held    chan struct{}                   // nil, or counts go on when it is closed
	away    func(ctx context.Context) error // nil, or comes before every call
}

func (w *watched) meet(ctx context.Context) error {
	if w.away != nil {
		return w.away(ctx)
	}
	return nil
}

func (w *watched) Ping(ctx context.Context) error {
	return cmp.Or(w.meet(ctx), w.MemoryStore.Ping(ctx))
}

func (w *watched) OldestDue(ctx context.Context) (contract.Due, error) {
	if err := w.meet(ctx); err != nil {
		return contract.Due{}, err
	}
	return w.MemoryStore.OldestDue(ctx)
}

func (w *watched) Count(ctx context.Context, f jq.Filter) (jq.Counts, error) {
	w.counted.Add(1)
	if err := w.meet(ctx); err != nil {
		return jq.Counts{}, err
	}
	if w.held != nil {
		select {
		case <-w.held:
		case <-ctx.Done():
			return jq.Counts{}, jq.ErrUnavailable
		}
	}
	return w.MemoryStore.Count(ctx, f)
}

// never is what a store answers that is away.
func never(ctx context.Context) error {
	<-ctx.Done()
	return jq.ErrUnavailable
}

func TestLimitsHoldBack(t *testing.T) {
	store := jq.NewMemory(nil)
	m := jqprom.New(store, nil)
	defer m.Close()
	client := jq.NewClient(store, nil)
	for range 5 {
		_, err := client.Enqueue(t.Context(), welcome{"a"}, &jq.EnqueueOptions{Queue: "limited"})
		require.NoError(t, err)
	}
	_, err := client.Enqueue(t.Context(), welcome{"a"}, nil)
	require.NoError(t, err)
	_, err = client.SetPolicy(t.Context(), "limited", jq.Policy{MaxInFlight: 2, MaxPerKey: 3})
	require.NoError(t, err)
	_, err = client.SetPolicy(t.Context(), "keys", jq.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	_, err = client.SetPolicy(t.Context(), "rated", jq.Policy{Rate: jq.Rate{N: 90, Per: time.Minute}})
	require.NoError(t, err)
	_, err = store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "limited", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, "jq_queue_held_back{limit=max_in_flight,queue=limited} 3\njq_queue_max_in_flight{queue=limited} 2\n"+
		"jq_queue_max_per_key{queue=keys} 1\njq_queue_max_per_key{queue=limited} 3\njq_queue_max_rate{queue=rated} 1.5\n",
		scraped(t, m, "jq_queue_max_in_flight", "jq_queue_max_per_key", "jq_queue_max_rate", "jq_queue_held_back"))
}

func TestScrapesShareOneCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &watched{MemoryStore: jq.NewMemory(nil)}
		m := jqprom.New(store, &jqprom.Options{MaxCountAge: time.Minute})
		for range 10 {
			scraped(t, m)
			wait(5 * time.Second)
		}
		assert.EqualValues(t, 1, store.counted.Load())
		wait(time.Minute)
		scraped(t, m)
		assert.EqualValues(t, 2, store.counted.Load())
		require.NoError(t, store.Close())
	})
}

func TestScrapeGivesTheRestWhenTheStoreIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &watched{MemoryStore: jq.NewMemory(nil), away: never}
		m := jqprom.New(store, &jqprom.Options{Timeout: time.Second})
		m.Claimed("default", 3)
		began := time.Now()
		assert.Equal(t, "jq_jobs_claimed_total{queue=default} 3\njq_store_up{} 0\n", scraped(t, m, "jq_jobs", "jq_jobs_claimed_total", "jq_store_up"))
		assert.Equal(t, time.Second, time.Since(began), "a scrape waits for so long")
		m.Close()
		require.NoError(t, store.Close())
	})
}

// D29: jobs of transactions that were rolled back were counted among those that were added.
func TestRolledBackJobsWereCountedAsAdded(t *testing.T) {
	store := jq.NewMemory(nil)
	m := jqprom.New(store, nil)
	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{m.Enqueue}})
	names := []string{"jq_jobs_enqueued_total", "jq_jobs_enqueued_in_tx_total"}
	tx, err := store.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.EnqueueTx(t.Context(), tx, welcome{"Ada"}, nil)
	require.NoError(t, err)
	_, err = client.EnqueueManyTx(t.Context(), tx, []jq.Item{{Payload: welcome{"Ada"}}}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, "jq_jobs_enqueued_in_tx_total{kind=welcome,queue=default} 2\n", scraped(t, m, names...))
	_, err = client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	assert.Contains(t, scraped(t, m, names...), "jq_jobs_enqueued_total{kind=welcome,queue=default} 1\n")
	require.NoError(t, store.Close())
}

// D9: no scrape could be answered.
func TestNegativeTimeoutShowedNoStore(t *testing.T) {
	store := jq.NewMemory(nil)
	m := jqprom.New(store, &jqprom.Options{Timeout: -time.Second})
	assert.Equal(t, "jq_store_up{} 1\n", scraped(t, m, "jq_store_up"))
	require.NoError(t, store.Close())
}

// A middleware inside that answers for more jobs than it was given is no reason to panic: the client says what is wrong.
func TestAnswersForOtherJobsAreNotCounted(t *testing.T) {
	store := jq.NewMemory(nil)
	m := jqprom.New(store, nil)
	twice := func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			req.Jobs = append(req.Jobs, req.Jobs...)
			return next(ctx, req)
		}
	}
	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{m.Enqueue, twice}})
	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.ErrorContains(t, err, "returned 2 answers")
	assert.Equal(t, "jq_jobs_enqueued_total{kind=welcome,queue=default} 1\n", scraped(t, m, "jq_jobs_enqueued_total"))
	require.NoError(t, store.Close())
}

// Whoever may enqueue invents names at will: 100,000 kinds made a page of 29 MB.
func TestLabelsHaveABound(t *testing.T) {
	store := jq.NewMemory(nil)
	m := jqprom.New(store, &jqprom.Options{MaxLabels: 2})
	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{m.Enqueue}})
	for _, queue := range []string{"a", "b", "c", "d", "a", "c"} {
		_, err := client.Enqueue(t.Context(), welcome{}, &jq.EnqueueOptions{Queue: queue})
		require.NoError(t, err)
		m.Claimed(queue, 1)
		m.Finished(queue, "welcome", "succeeded")
		m.Started(jq.Job{Queue: queue, Kind: "welcome"}, time.Second)
		m.Ended(jq.Job{Queue: queue, Kind: "welcome"}, "succeeded", jq.Succeeded, time.Second)
	}
	for _, queue := range []string{"a", "c", "d"} {
		_, err := client.SetPolicy(t.Context(), queue, jq.Policy{Rate: jq.Rate{N: 30, Per: time.Minute}})
		require.NoError(t, err)
	}
	assert.Equal(t, `jq_jobs_enqueued_total{kind=(other),queue=(other)} 3
jq_jobs_enqueued_total{kind=welcome,queue=a} 2
jq_jobs_enqueued_total{kind=welcome,queue=b} 1
`, scraped(t, m, "jq_jobs_enqueued_total"))
	assert.Equal(t, "jq_jobs_claimed_total{queue=(other)} 3\njq_jobs_claimed_total{queue=a} 2\njq_jobs_claimed_total{queue=b} 1\n",
		scraped(t, m, "jq_jobs_claimed_total"))
	assert.Equal(t, "jq_job_run_seconds{kind=(other),queue=(other)} 3\njq_job_run_seconds{kind=welcome,queue=a} 2\njq_job_run_seconds{kind=welcome,queue=b} 1\n",
		scraped(t, m, "jq_job_run_seconds"))
	assert.Equal(t, 3, strings.Count(scraped(t, m, "jq_job_wait_seconds"), "\n"))
	assert.Equal(t, 3, strings.Count(scraped(t, m, "jq_jobs_finished_total"), "\n"))
	assert.Equal(t, "jq_queue_max_rate{queue=(other)} 1\njq_queue_max_rate{queue=a} 0.5\n", scraped(t, m, "jq_queue_max_rate"))
	gauges := scraped(t, m, "jq_jobs")
	assert.Contains(t, gauges, "jq_jobs{queue=(other),state=ready} 3\n")
	assert.Contains(t, gauges, "jq_jobs{queue=a,state=ready} 2\n")
	assert.NotContains(t, gauges, "queue=c")
	assert.Equal(t, 3, strings.Count(scraped(t, m, "jq_queue_oldest_ready_seconds"), "\n"))
}

// depth is what a scrape shows of the backlog.
func depth(t *testing.T, m *jqprom.Metrics) string {
	t.Helper()
	return scraped(t, m, "jq_jobs", "jq_jobs_age_seconds", "jq_queue_oldest_ready_seconds", "jq_store_up")
}

func addTo(t *testing.T, s jq.Store, queue string) {
	t.Helper()
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), welcome{}, &jq.EnqueueOptions{Queue: queue})
	require.NoError(t, err)
}

// D20: with 470,000 jobs that wait, each scrape lasted two seconds, jq_store_up was 0, and the recommended alert saw nothing. Here a
// count lasts for as long as the test likes.
func TestMetricsStayTrueUnderADeepBacklog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &watched{MemoryStore: jq.NewMemory(nil)}
		m := jqprom.New(store, nil)
		addTo(t, store, "a")
		const states = "jq_jobs{queue=a,state=blocked} 0\njq_jobs{queue=a,state=dead} 0\njq_jobs{queue=a,state=in_flight} 0\njq_jobs{queue=a,state=ready} 1\njq_jobs{queue=a,state=retrying} 0\n"
		assert.Equal(t, states+"jq_jobs_age_seconds{} 0\njq_queue_oldest_ready_seconds{queue=a} 0\njq_store_up{} 1\n", depth(t, m))

		store.held = make(chan struct{})
		wait(10 * time.Second)
		addTo(t, store, "b")
		wait(10 * time.Second)
		began := time.Now()
		assert.Equal(t, states+"jq_jobs_age_seconds{} 20.5\njq_queue_oldest_ready_seconds{queue=a} 20\njq_queue_oldest_ready_seconds{queue=b} 10\njq_store_up{} 1\n",
			depth(t, m), "the age of the counts is told, and what is due is of now")
		assert.Equal(t, time.Second/2, time.Since(began), "a scrape does not wait for a long count")
		for range 5 {
			scraped(t, m)
		}
		assert.EqualValues(t, 2, store.counted.Load(), "counts do not stack")

		wait(7 * time.Second)
		close(store.held)
		wait(time.Second)
		assert.Contains(t, depth(t, m), "jq_jobs{queue=b,state=ready} 1\n", "a later scrape shows the count")
		m.Close()
		require.NoError(t, store.Close())
	})
}

// A count that takes long is made seldom: it takes up a tenth of the time at most.
func TestLongCountsRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &watched{MemoryStore: jq.NewMemory(nil), away: func(context.Context) error {
			<-time.After(time.Second)
			return nil
		}}
		m := jqprom.New(store, &jqprom.Options{MaxCountAge: time.Second})
		for range 100 {
			scraped(t, m)
		}
		assert.EqualValues(t, 10, store.counted.Load(), "a hundred seconds have passed, of which it has counted for ten")
		m.Close()
		require.NoError(t, store.Close())
	})
}

// A store that is no Monitor is counted for what is due.
func TestAStoreWithoutAMonitorIsCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := struct{ jq.Store }{jq.NewMemory(nil)}
		m := jqprom.New(store, nil)
		addTo(t, store, "a")
		wait(3 * time.Second)
		assert.Equal(t, "jq_queue_oldest_ready_seconds{queue=a} 3\njq_store_up{} 1\n", scraped(t, m, "jq_queue_oldest_ready_seconds", "jq_store_up"))
		require.NoError(t, store.Close())
	})
}

// Close ends a count under way, and waits for it.
func TestCloseEndsACount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &watched{MemoryStore: jq.NewMemory(nil), held: make(chan struct{})}
		m := jqprom.New(store, nil)
		scraped(t, m)
		began := time.Now()
		m.Close()
		assert.Zero(t, time.Since(began))
		require.NoError(t, store.Close())
	})
}
