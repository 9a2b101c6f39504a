// Package jqprom provides Prometheus metrics of clients, servers and the store.
//
//	metrics := jqprom.New(store, nil)
//	prometheus.MustRegister(metrics)
//	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{metrics.Enqueue}})
//	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Observer: metrics})
//	metrics.Watch(server)
//
// Counters and histograms cover this process. The metrics jq_jobs and jq_queue_oldest_ready_seconds are read from the store, so
// they are the same in every process that you scrape. Each scrape looks up the oldest ready job through an index of the store.
// Counting many jobs takes long, so jq_jobs may be older than the scrape: see jq_jobs_age_seconds.
//
// Alert on the oldest ready job, not on the depth of a queue: a deep queue whose jobs keep moving is fine.
package jqprom

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// Metrics is a collector for Prometheus, an observer for servers, and a middleware for clients.
type Metrics struct {
	jq.NopObserver

	store  *reading
	labels *labels

	enqueued     *prometheus.CounterVec
	enqueuedInTx *prometheus.CounterVec
	claimed      *prometheus.CounterVec
	finished     *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	run          *prometheus.HistogramVec
	recovered    *prometheus.CounterVec
	expired      *prometheus.CounterVec
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

// Options configures New. Zero fields mean the default.
type Options struct {
	// Timeout is how long a scrape waits for the store. It waits for a count up to a quarter of this time. A count that takes
	// longer goes on, and a later scrape shows it. Default: 2 seconds.
	Timeout time.Duration
	// MaxCountAge is how long counts of jobs are reused, so that many scrapers cost the store one count. If a count took long,
	// it is reused for nine times as long as it took. Default: 5 seconds.
	MaxCountAge time.Duration
	// WaitBuckets and RunBuckets are the bounds of the histograms, in seconds. Defaults: DefaultWaitBuckets and
	// DefaultRunBuckets.
	WaitBuckets []float64
	RunBuckets  []float64
	// MaxLabels is how many queues, and how many pairs of a queue and a kind, have their own metrics. The first ones get them,
	// and all others share the label "(other)". Default: 1,000.
	MaxLabels int
}

// The default bounds of the histograms, in seconds. Append to a copy of them in [Options], to see longer times.
var (
	// DefaultWaitBuckets are for how long jobs wait: one millisecond to one hour.
	DefaultWaitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	// DefaultRunBuckets are for how long handlers run: one millisecond to 15 minutes.
	DefaultRunBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
)

// New returns the metrics of a store. Options may be nil.
func New(s jq.Store, options *Options) *Metrics {
	o := *cmp.Or(options, &Options{})
	if o.Timeout <= 0 { // a negative timeout would fail every scrape
		o.Timeout = 2 * time.Second
	}
	o.MaxCountAge = cmp.Or(o.MaxCountAge, 5*time.Second)
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
	m := &Metrics{
		store:        newReading(s, o.Timeout, o.MaxCountAge),
		labels:       newLabels(o.MaxLabels),
		enqueued:     counter("jq_jobs_enqueued_total", "Jobs that were added, duplicates and those in callers' transactions apart.", "queue", "kind"),
		enqueuedInTx: counter("jq_jobs_enqueued_in_tx_total", "Jobs that were enqueued in callers' transactions, of which some may have been rolled back.", "queue", "kind"),
		claimed:      counter("jq_jobs_claimed_total", "Jobs that were claimed.", "queue"),
		finished:     counter("jq_jobs_finished_total", "Runs that ended, by outcome: succeeded, retrying, dead, snoozed or released.", "queue", "kind", "outcome"),
		wait:         histogram("jq_job_wait_seconds", "How long jobs were due before they were claimed; retries apart.", o.WaitBuckets),
		run:          histogram("jq_job_run_seconds", "How long handlers ran.", o.RunBuckets),
		expired:      counter("jq_jobs_expired_total", "Jobs that were cancelled because they had expired.", "queue", "kind"),
		recovered:    counter("jq_leases_recovered_total", "Expired leases that were ended, by outcome: retrying or dead.", "outcome"),
		stale:        counter("jq_stale_writes_rejected_total", "Writes that were refused because their lease was lost, by operation.", "op"),
		refused:      counter("jq_http_refused_total", "Requests that jq serve has refused because of who has made them: unauthorized or forbidden.", "reason"),
		beats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jq_heartbeat_failures_total", Help: "Heartbeats that did not reach the store.",
		}),
	}
	m.begin()
	return m
}

// begin gives the counters whose labels are known their first value, 0. Prometheus sees no increase in a counter that appears with
// its first event, so an alert on one would miss it.
func (m *Metrics) begin() {
	for _, outcome := range []jq.State{jq.Retrying, jq.Dead} {
		m.recovered.WithLabelValues(string(outcome))
	}
	for _, op := range []string{"ack", "nack", "extend", "save", "confirm"} {
		m.stale.WithLabelValues(op)
	}
	for _, reason := range []string{"unauthorized", "forbidden"} {
		m.refused.WithLabelValues(reason)
	}
}

// Watch adds the server's slots to the metrics.
func (m *Metrics) Watch(s *jq.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, s)
}

// Enqueue is the middleware that counts the jobs that a client adds. Jobs in a caller's transaction have their own counter,
// because the transaction may be rolled back.
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

// Added counts a job that was added without the middleware, over HTTP.
func (m *Metrics) Added(queue, kind string) {
	m.enqueued.WithLabelValues(m.labels.pair(queue, kind)).Inc()
}

// Claimed counts claimed jobs.
func (m *Metrics) Claimed(queue string, jobs int) {
	m.claimed.WithLabelValues(m.labels.queue(queue)).Add(float64(jobs))
}

// Started measures how long the job waited.
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

// Finished counts a run that a worker has reported over HTTP. Its duration is not known here.
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

// Settled counts expired jobs.
func (m *Metrics) Settled(jobs []jq.Settled) {
	for _, j := range jobs {
		if !j.Expired {
			continue
		}
		m.expired.WithLabelValues(m.labels.pair(j.Queue, j.Kind)).Inc()
	}
}

// StaleWrite counts refused writes.
func (m *Metrics) StaleWrite(op string) { m.stale.WithLabelValues(op).Inc() }

// Refused counts requests that a server has refused.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// BeatFailed counts heartbeats that did not reach the store.
func (m *Metrics) BeatFailed() { m.beats.Inc() }

var (
	jobs    = prometheus.NewDesc("jq_jobs", "Jobs in the store that are not finished, and dead ones.", []string{"queue", "state"}, nil)
	jobsAge = prometheus.NewDesc("jq_jobs_age_seconds", "How old the counts of jq_jobs are.", nil, nil)
	oldest  = prometheus.NewDesc("jq_queue_oldest_ready_seconds", "For how long the oldest claimable job has been due.", []string{"queue"}, nil)
	limit   = prometheus.NewDesc("jq_queue_max_in_flight", "How many jobs of the queue its policy lets be in flight at once.", []string{"queue"}, nil)
	perKey  = prometheus.NewDesc("jq_queue_max_per_key", "How many jobs of the queue with the same limit key its policy lets be in flight at once.", []string{"queue"}, nil)
	rate    = prometheus.NewDesc("jq_queue_max_rate", "How many jobs of the queue a second its policy lets be claimed.", []string{"queue"}, nil)
	held    = prometheus.NewDesc("jq_queue_held_back", "Due jobs that no claim could have taken when they were counted, because of this limit of their queue's policy. Jobs that only a limit for each key or a rate held back are not counted.", []string{"queue", "limit"}, nil)
	up      = prometheus.NewDesc("jq_store_up", "Whether the store answers.", nil, nil)
	slots   = prometheus.NewDesc("jq_worker_slots", "Slots for handlers, by state: running, idle or abandoned.", []string{"state"}, nil)
)

func (m *Metrics) own() []prometheus.Collector {
	return []prometheus.Collector{m.enqueued, m.enqueuedInTx, m.claimed, m.finished, m.wait, m.run, m.recovered, m.expired, m.stale, m.refused, m.beats}
}

// Describe names the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.own() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{jobs, jobsAge, oldest, limit, perKey, rate, held, up, slots} {
		ch <- d
	}
}

// Collect gathers the metrics. It leaves out what the store does not answer in time. Job counts are the latest known ones,
// with their age.
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
	if seen.counts.Known() {
		ch <- prometheus.MustNewConstMetric(jobsAge, prometheus.GaugeValue, time.Since(seen.counts.Began).Seconds())
		m.collectJobs(ch, seen.counts.Value)
		m.collectLimits(ch, seen.queues, seen.counts.Value)
	}
	if seen.due != nil {
		m.collectDue(ch, *seen.due, seen.counts.Value)
	}
}

// Close cancels the pending calls to the store and waits for them. Unregister the metrics first, then close them, then the
// store.
func (m *Metrics) Close() { m.store.end() }

// collectJobs sends the job counts of each queue. Queues beyond the label limit share one set of counts.
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

// collectDue sends how long the oldest due job of each queue has been due. Queues beyond the label limit share one value. A
// queue that has jobs but no due one has 0.
func (m *Metrics) collectDue(ch chan<- prometheus.Metric, due contract.Due, counts jq.Counts) {
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

// collectLimits sends the limits of the queues that have one, and how many due jobs they held back. Queues beyond the label limit share one sum of
// each, and the greatest limit for each key.
func (m *Metrics) collectLimits(ch chan<- prometheus.Metric, queues []jq.Queue, counts jq.Counts) {
	by := map[string]jq.QueueCount{}
	for _, q := range counts.Queues {
		by[q.Queue] = q
	}
	limits, ofKeys, left, rates := map[string]int{}, map[string]int{}, map[string]int64{}, map[string]float64{}
	for _, q := range queues {
		if q.Policy.MaxInFlight == 0 && q.Policy.MaxPerKey == 0 && q.Policy.Rate.N == 0 {
			continue
		}
		label, counted := m.labels.queue(q.Name), by[q.Name]
		if q.Policy.Rate.N > 0 {
			rates[label] += float64(q.Policy.Rate.N) / q.Policy.Rate.Per.Seconds()
		}
		if q.Policy.MaxPerKey > 0 {
			ofKeys[label] = max(ofKeys[label], q.Policy.MaxPerKey)
		}
		if q.Policy.MaxInFlight == 0 {
			continue
		}
		limits[label] += q.Policy.MaxInFlight
		left[label] += counted.Due - int64(q.Policy.Room(int(counted.Due), int(counted.Jobs[jq.InFlight])))
	}
	for label, most := range limits {
		ch <- prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(most), label)
		ch <- prometheus.MustNewConstMetric(held, prometheus.GaugeValue, float64(left[label]), label, "max_in_flight")
	}
	for label, most := range rates {
		ch <- prometheus.MustNewConstMetric(rate, prometheus.GaugeValue, most, label)
	}
	for label, most := range ofKeys {
		ch <- prometheus.MustNewConstMetric(perKey, prometheus.GaugeValue, float64(most), label)
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

// counted lists the states that the metrics show. Succeeded and cancelled jobs are left out: there are many of them, they
// only wait to be deleted, and counting them costs more the longer they are kept.
var counted = [...]jq.State{jq.Blocked, jq.Ready, jq.InFlight, jq.Retrying, jq.Dead}
