// Package jqprom shows a queue to Prometheus.
//
//	metrics := jqprom.New(store, nil)
//	prometheus.MustRegister(metrics)
//	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{metrics.Enqueue}})
//	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Observer: metrics})
//	metrics.Watch(server)
//
// Counters and histograms tell what this process has done; jq_jobs and jq_queue_oldest_ready_seconds are read from the store,
// and are the same from whichever process they are scraped. The oldest ready job is found anew for each scrape, through an index of
// the store; to count many jobs takes long, so jq_jobs may be older than the scrape: see jq_jobs_age_seconds. Alert on the oldest ready job rather than on the depth of a queue:
// a deep queue that moves is fine.
package jqprom

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ed332417/jq"
)

// Metrics are what Prometheus collects. They observe servers, and stand around enqueueing.
type Metrics struct {
	jq.Unobserved

	store  *reading
	labels *labels

	enqueued     *prometheus.CounterVec
	enqueuedInTx *prometheus.CounterVec
	claimed      *prometheus.CounterVec
	finished     *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	run          *prometheus.HistogramVec
	recovered    *prometheus.CounterVec
	stale        *prometheus.CounterVec
	refused      *prometheus.CounterVec
	beats        prometheus.Counter

	mu      sync.Mutex // guards servers
	servers []*jq.Server
}

var (
	_ jq.Observer          = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// Options are what can be chosen; the zero value of each field means its default.
type Options struct {
	// Timeout is how long a scrape waits for the store, and up to a quarter of it for a count: one that takes longer goes on, and a
	// later scrape shows it. Default: 2 seconds.
	Timeout time.Duration
	// MaxAge is for how long the counts of jobs are shown again, so that many scrapers cost the store one count. Where that takes
	// long, they are shown for nine times as long as it took. Default: 5 seconds.
	MaxAge time.Duration
	// WaitBuckets and RunBuckets are the bounds of the histograms, in seconds.
	WaitBuckets []float64
	RunBuckets  []float64
	// MaxLabels is how many queues, and how many pairs of a queue and a kind, have metrics of their own: the first that come. Those
	// beyond share the label "(other)". Default: 1,000.
	MaxLabels int
}

// The defaults of the bounds, in seconds: from a millisecond to an hour, and from a millisecond to a quarter of one.
var (
	DefaultWaitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	DefaultRunBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
)

// New returns the metrics of a store. Options may be nil.
func New(s jq.Store, options *Options) *Metrics {
	var o Options
	if options != nil {
		o = *options
	}
	if o.Timeout <= 0 { // with a negative one no scrape could be answered
		o.Timeout = 2 * time.Second
	}
	if o.MaxAge == 0 {
		o.MaxAge = 5 * time.Second
	}
	if o.WaitBuckets == nil {
		o.WaitBuckets = DefaultWaitBuckets
	}
	if o.RunBuckets == nil {
		o.RunBuckets = DefaultRunBuckets
	}
	if o.MaxLabels <= 0 {
		o.MaxLabels = 1000
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"queue", "kind"})
	}
	return &Metrics{
		store:        &reading{store: s, timeout: o.Timeout, maxAge: o.MaxAge},
		labels:       newLabels(o.MaxLabels),
		enqueued:     counter("jq_jobs_enqueued_total", "Jobs that were added, duplicates and those in callers' transactions apart.", "queue", "kind"),
		enqueuedInTx: counter("jq_jobs_enqueued_in_tx_total", "Jobs that were enqueued in callers' transactions, of which some may have been rolled back.", "queue", "kind"),
		claimed:      counter("jq_jobs_claimed_total", "Jobs that were claimed.", "queue"),
		finished:     counter("jq_jobs_finished_total", "Runs that ended, by outcome: succeeded, retrying, dead, snoozed or released.", "queue", "kind", "outcome"),
		wait:         histogram("jq_job_wait_seconds", "How long jobs were due before they were claimed; retries apart.", o.WaitBuckets),
		run:          histogram("jq_job_run_seconds", "How long handlers ran.", o.RunBuckets),
		recovered:    counter("jq_leases_recovered_total", "Expired leases that were ended, by outcome: retrying or dead.", "outcome"),
		stale:        counter("jq_stale_writes_rejected_total", "Writes that were refused because their lease was lost, by operation.", "op"),
		refused:      counter("jq_http_refused_total", "Requests that jq serve has refused because of who has made them: unauthorized or forbidden.", "reason"),
		beats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jq_heartbeat_failures_total", Help: "Heartbeats that did not reach the store.",
		}),
	}
}

// Watch shows the slots of the server as well.
func (m *Metrics) Watch(s *jq.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, s)
}

// Enqueue is the middleware that counts what a client adds. What it adds in callers' transactions is counted apart: these may be
// rolled back.
func (m *Metrics) Enqueue(next jq.EnqueueFunc) jq.EnqueueFunc {
	return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
		added, err := next(ctx, req)
		for i, a := range added[:min(len(added), len(req.Jobs))] { // another middleware may answer for more
			switch j := req.Jobs[i]; {
			case a.Duplicate:
			case jq.InTx(ctx):
				m.enqueuedInTx.WithLabelValues(m.labels.pair(j.Queue, j.Kind)).Inc()
			default:
				m.Added(j.Queue, j.Kind)
			}
		}
		return added, err
	}
}

// Added counts a job that was added without the middleware: over HTTP.
func (m *Metrics) Added(queue, kind string) {
	m.enqueued.WithLabelValues(m.labels.pair(queue, kind)).Inc()
}

// Claimed counts claimed jobs.
func (m *Metrics) Claimed(queue string, jobs int) {
	m.claimed.WithLabelValues(m.labels.queue(queue)).Add(float64(jobs))
}

// Started measures how long the job has waited.
func (m *Metrics) Started(j jq.Job, waited time.Duration) {
	if waited >= 0 {
		m.wait.WithLabelValues(m.labels.pair(j.Queue, j.Kind)).Observe(waited.Seconds())
	}
}

// Ended counts the run and measures how long it took.
func (m *Metrics) Ended(j jq.Job, ending jq.Ending, phase jq.State, ran time.Duration) {
	outcome := string(ending)
	if phase == jq.Retrying || phase == jq.Dead {
		outcome = string(phase)
	}
	m.Finished(j.Queue, j.Kind, outcome)
	m.run.WithLabelValues(m.labels.pair(j.Queue, j.Kind)).Observe(ran.Seconds())
}

// Finished counts a run that has ended elsewhere, in a worker that has told so over HTTP: how long it took is not known.
func (m *Metrics) Finished(queue, kind, outcome string) {
	queue, kind = m.labels.pair(queue, kind)
	m.finished.WithLabelValues(queue, kind, outcome).Inc()
}

// Recovered counts expired leases.
func (m *Metrics) Recovered(leases []jq.Recovered) {
	for _, r := range leases {
		outcome := jq.Retrying
		if r.Next.IsZero() {
			outcome = jq.Dead
		}
		m.recovered.WithLabelValues(string(outcome)).Inc()
	}
}

// StaleWrite counts refused writes.
func (m *Metrics) StaleWrite(op string) { m.stale.WithLabelValues(op).Inc() }

// Refused counts requests that a server has refused.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// BeatFailed counts heartbeats that were lost.
func (m *Metrics) BeatFailed() { m.beats.Inc() }

var (
	jobs    = prometheus.NewDesc("jq_jobs", "Jobs in the store that are not finished, and dead ones.", []string{"queue", "state"}, nil)
	jobsAge = prometheus.NewDesc("jq_jobs_age_seconds", "How old the counts of jq_jobs are.", nil, nil)
	oldest  = prometheus.NewDesc("jq_queue_oldest_ready_seconds", "For how long the oldest claimable job has been due.", []string{"queue"}, nil)
	up      = prometheus.NewDesc("jq_store_up", "Whether the store answers.", nil, nil)
	slots   = prometheus.NewDesc("jq_worker_slots", "Slots for handlers, by state: running, idle or abandoned.", []string{"state"}, nil)
)

func (m *Metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.enqueued, m.enqueuedInTx, m.claimed, m.finished, m.wait, m.run, m.recovered, m.stale, m.refused, m.beats}
}

// Describe names the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.own() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{jobs, jobsAge, oldest, up, slots} {
		ch <- d
	}
}

// Collect gathers them. What the store does not tell in time is left out. Counts are the latest there are, with their age.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.own() {
		c.Collect(ch)
	}
	m.collectSlots(ch)
	seen := m.store.read()
	answers := 0.0
	if seen.up {
		answers = 1
	}
	ch <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, answers)
	if seen.counts.known() {
		ch <- prometheus.MustNewConstMetric(jobsAge, prometheus.GaugeValue, time.Since(seen.counts.began).Seconds())
		m.collectJobs(ch, seen.counts.value)
	}
	if seen.due != nil {
		m.collectDue(ch, *seen.due, seen.counts.value)
	}
}

// Close ends what the metrics are asking the store, and waits for it. Close them before the store, when nobody collects them any more.
func (m *Metrics) Close() { m.store.end() }

// collectJobs shows each queue, and the jobs of those beyond the limit of labels as one.
func (m *Metrics) collectJobs(ch chan<- prometheus.Metric, counts jq.Counts) {
	shown := map[string][len(counted)]int64{}
	for _, q := range counts.Queues {
		label := m.labels.queue(q.Queue)
		all := shown[label]
		for i, state := range counted {
			all[i] += q.Jobs[state]
		}
		shown[label] = all
	}
	for label, all := range shown {
		for i, state := range counted {
			ch <- prometheus.MustNewConstMetric(jobs, prometheus.GaugeValue, float64(all[i]), label, string(state))
		}
	}
}

// collectDue shows each queue, and those beyond the limit of labels as one: for how long the oldest job of them has been due. A queue
// that has jobs, and none that is due, has 0.
func (m *Metrics) collectDue(ch chan<- prometheus.Metric, due jq.Due, counts jq.Counts) {
	shown := map[string]float64{}
	for _, q := range counts.Queues {
		shown[m.labels.queue(q.Queue)] = 0
	}
	for _, q := range due.Queues {
		label := m.labels.queue(q.Queue)
		shown[label] = max(shown[label], due.Now.Sub(q.OldestDue).Seconds())
	}
	for label, age := range shown {
		ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, age, label)
	}
}

func (m *Metrics) collectSlots(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	servers := slices.Clone(m.servers)
	m.mu.Unlock()
	if len(servers) == 0 {
		return
	}
	states := map[string]int{}
	for _, s := range servers {
		st := s.Stats()
		states["running"] += st.Running
		states["idle"] += st.Slots - st.Running
		states["abandoned"] += st.Abandoned
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(slots, prometheus.GaugeValue, float64(n), state)
	}
}

// counted are the states that are shown. What has succeeded or was cancelled is left out: there is much of it, it only waits for
// its deletion, and to count it costs the more the longer it is kept.
var counted = [...]jq.State{jq.Ready, jq.InFlight, jq.Retrying, jq.Dead}
