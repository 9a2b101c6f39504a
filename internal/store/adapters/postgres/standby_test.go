package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// standbyOf starts a standby, which ends with the test.
func standbyOf(t *testing.T, primary *pgtest.Cluster) *pgtest.Cluster {
	t.Helper()
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	return standby
}

// replicated starts a primary whose commits wait for its standby, and which warns only those who ask for it.
func replicated(t *testing.T) (primary, standby *pgtest.Cluster) {
	t.Helper()
	primary = ownServer(t, pgtest.Options{Settings: []string{"synchronous_commit=on", "client_min_messages=error"}})
	standby = standbyOf(t, primary)
	require.NoError(t, primary.Synchronous(t.Context(), true))
	return primary, standby
}

// A cutOff is calls whose commits wait for a standby that is cut off.
type cutOff struct {
	*testing.T
	primary, standby *pgtest.Cluster
	admin            *sql.DB // waits for nobody
	s, crowded       *Store
	waits            int // commits that were seen to wait
}

// A writing is a call that commits. What it needs is there before the standby is cut off; it may be repeated.
type writing struct {
	name string
	call func(ctx context.Context) error
	kept func(t *testing.T, s *Store) // that the effect is there
}

// breaks are how a wait can be broken off, once all commits wait.
var breaks = []struct {
	name    string
	options Options
	do      func(c *cutOff, end context.CancelFunc)
}{
	{"ContextEnds", Options{}, func(_ *cutOff, end context.CancelFunc) { end() }},
	{"CancelledByAnother", Options{}, func(c *cutOff, _ context.CancelFunc) { c.signal("pg_cancel_backend") }},
	{"TerminatedByAnother", Options{}, func(c *cutOff, _ context.CancelFunc) { c.signal("pg_terminate_backend") }},
	{"TimeoutOfTheStore", Options{Timeout: waitTimeout}, func(*cutOff, context.CancelFunc) {}},
	{"TimeoutBehindAPooler", Options{Timeout: waitTimeout, Pooled: true}, func(*cutOff, context.CancelFunc) {}},
}

// waitTimeout is long enough for all calls to begin to wait. The server's own time-outs end before a commit begins to wait: it is
// the store that gives up, two seconds later.
const waitTimeout = 3 * time.Second

// signal lets the server end what the waiting sessions do.
func (c *cutOff) signal(function string) {
	c.Helper()
	_, err := c.admin.ExecContext(c.Context(), `SELECT `+function+`(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'`)
	require.NoError(c, err)
}

// open opens the stores of one kind of break.
func (c *cutOff) open(o Options) {
	c.Helper()
	o.MaxConns = 40 // for as many calls at once
	for _, s := range []**Store{&c.s, &c.crowded} {
		opened, err := Open(c.Context(), c.primary.DSN, &o)
		require.NoError(c, err)
		c.Cleanup(func() { assert.NoError(c, opened.Close()) })
		*s = opened
	}
}

// writings are one call of each kind. The claim takes the only job of its queue.
func (c *cutOff) writings() []writing { return c.named(strings.ReplaceAll(c.Name(), "/", " ")) }

// named are they for queues and keys of the name.
func (c *cutOff) named(name string) []writing {
	c.Helper()
	job := func(kind string) store.NewJob { return laterJob(name, kind) }
	unique := job("unique")
	unique.UniqueKey = name
	enqueueing := func(kind string, s *Store, n store.NewJob, key string) writing {
		return writing{kind, func(ctx context.Context) error {
			_, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{n}, RequestKey: key})
			return err
		}, func(t *testing.T, s *Store) { hasKind(t, s, name, n.Kind) }}
	}
	_, err := c.s.Enqueue(c.Context(), store.EnqueueRequest{Jobs: []store.NewJob{
		{Queue: name + " held", Kind: "k", Payload: []byte(`1`)}, {Queue: name + " held", Kind: "k", Payload: []byte(`1`)},
		{Queue: name + " held", Kind: "k", Payload: []byte(`1`)}, {Queue: name + " held", Kind: "k", Payload: []byte(`1`)},
		{Queue: name + " waits", Kind: "k", Payload: []byte(`1`)},
	}})
	require.NoError(c, err)
	held, err := c.s.FetchAndClaim(c.Context(), store.ClaimRequest{Queue: name + " held", Limit: 4, Worker: "w", TTL: time.Hour})
	require.NoError(c, err)
	require.Len(c, held, 4)
	of := func(err error, outcomes []store.Outcome) error {
		if err == nil && outcomes[0].Status != store.StatusOK {
			err = fmt.Errorf("answered with %v", outcomes[0].Status)
		}
		return err
	}
	phase := func(id int64, want store.State) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			got, err := s.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, want, got.Phase())
		}
	}
	return []writing{
		enqueueing("enqueue", c.s, job("lone"), ""),
		enqueueing("enqueue by a unique key", c.s, unique, ""),
		enqueueing("enqueue by a request key", c.s, job("request"), name),
		{"ack", func(ctx context.Context) error {
			outcomes, err := c.s.Ack(ctx, acksOf(held[:1]))
			return of(err, outcomes)
		}, phase(held[0].ID, store.Succeeded)},
		{"nack", func(ctx context.Context) error {
			outcomes, err := c.s.NAck(ctx, []store.NAck{{Lease: held[1].Lease(), Form: store.Never, Error: "no"}})
			return of(err, outcomes)
		}, phase(held[1].ID, store.Dead)},
		{"extend", func(ctx context.Context) error {
			outcomes, err := c.s.Extend(ctx, []store.Lease{held[2].Lease()}, 30*time.Minute)
			return of(err, outcomes)
		}, phase(held[2].ID, store.InFlight)},
		{"cancel", func(ctx context.Context) error {
			outcomes, err := c.s.Cancel(ctx, store.Filter{IDs: []int64{held[3].ID}}, 1)
			return of(err, outcomes)
		}, phase(held[3].ID, store.Cancelled)},
		{"pause", func(ctx context.Context) error { return c.s.SetPaused(ctx, name, true) }, func(t *testing.T, s *Store) {
			queues, err := s.Queues(t.Context())
			require.NoError(t, err)
			assert.Contains(t, queues, store.Queue{Name: name, Paused: true})
		}},
		{"claim", func(ctx context.Context) error {
			jobs, err := c.s.FetchAndClaim(ctx, store.ClaimRequest{Queue: name + " waits", Limit: 1, Worker: "w", TTL: time.Hour})
			if err == nil && len(jobs) == 0 {
				return errNothing
			}
			return err
		}, func(*testing.T, *Store) {}},
	}
}

// laterJob is one of which nobody is told: of commits that tell of something, one after the other waits.
func laterJob(queue, kind string) store.NewJob {
	return store.NewJob{Queue: queue, Kind: kind, Payload: []byte(`1`), RunAt: time.Now().Add(time.Hour)}
}

var errNothing = errors.New("nothing was claimed")

func hasKind(t *testing.T, s *Store, queue, kind string) {
	t.Helper()
	page, err := s.List(t.Context(), store.Filter{Queue: queue, Kind: kind}, store.Page{Limit: 2})
	require.NoError(t, err)
	assert.Len(t, page.Jobs, 1, kind)
}

// shared are the calls of three callers whose jobs share one commit.
func (c *cutOff) shared() []writing {
	c.crowded.group.commits = commitsAtOnce
	var all []writing
	for i := range 3 {
		all = append(all, writing{fmt.Sprint("enqueue together ", i), func(ctx context.Context) error {
			_, err := c.crowded.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{laterJob("shared", "k")}})
			return err
		}, func(*testing.T, *Store) {}})
	}
	return all
}

// share lets the callers who have gathered go on together.
func (c *cutOff) share(n int) {
	c.Helper()
	require.Eventually(c, func() bool {
		c.crowded.group.mu.Lock()
		defer c.crowded.group.mu.Unlock()
		return len(c.crowded.group.waiting) == n
	}, time.Minute, time.Millisecond)
	c.crowded.group.mu.Lock()
	c.crowded.group.commits = 1
	c.crowded.group.mu.Unlock()
	c.crowded.commitWaiting()
}

// breakOff makes all calls at the same time, and breaks their commits off once all wait.
func (c *cutOff) breakOff(calls []writing, commits, waiting int, do func(*cutOff, context.CancelFunc)) (errs []error) {
	c.Helper()
	ctx, end := context.WithCancel(c.Context())
	defer end()
	errs = make([]error, len(calls))
	var all sync.WaitGroup
	for i, one := range calls {
		all.Go(func() { errs[i] = one.call(ctx) })
	}
	if waiting > 0 {
		c.share(waiting)
	}
	_, err := c.primary.WaitingCommits(c.Context(), commits)
	require.NoError(c, err)
	do(c, end)
	all.Wait()
	c.waits += commits
	return errs
}

// D1: a commit whose wait for a standby is broken off was answered with success, and the failover lost it.
func TestCommitThatWasBrokenOffBeforeAStandbyHadItIsInDoubt(t *testing.T) {
	t.Parallel() // it waits for time-outs, on servers of its own
	primary, standby := replicated(t)
	admin, err := sql.Open("postgres", primary.DSN+" synchronous_commit=local")
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	waits := 0
	for _, b := range breaks {
		t.Run(b.name, func(t *testing.T) {
			c := &cutOff{T: t, primary: primary, standby: standby, admin: admin}
			c.open(b.options)
			calls, caller := c.writings(), c.ofCaller()
			require.NoError(t, standby.Detach(t.Context()))
			shared := c.shared()
			everything := append(append([]writing{caller}, calls...), shared...)
			for i, err := range c.breakOff(everything, 1+len(calls)+1, len(shared), b.do) {
				assert.ErrorIs(t, err, store.ErrInDoubt, everything[i].name)
			}
			c.settle()
			// The answer to a repeat rests on what the first call has left, and that may be lost.
			again := calls[1:8]
			for i, err := range c.breakOff(again, len(again), 0, b.do) {
				assert.ErrorIs(t, err, store.ErrInDoubt, "again: "+again[i].name)
			}
			require.NoError(t, standby.Attach(t.Context()))
			for _, one := range again {
				assert.NoError(t, one.call(t.Context()), "once more: "+one.name)
				one.kept(t, c.s)
			}
			c.rested()
			waits += c.waits
		})
	}
	if t.Failed() {
		return
	}
	figures.Print(t, "%d commits of 12 kinds whose wait for a synchronous standby was broken off in %d ways: none was answered ok",
		waits, len(breaks))
	figures.Count(t, "commits broken off", waits)
}

// The answer to a repeat rests on what the first call has deleted, and there is nothing left to lock.
func TestRepeatThatFindsNothingWaitsForAStandby(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	admin, err := sql.Open("postgres", primary.DSN+" synchronous_commit=local")
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	c := &cutOff{T: t, primary: primary, standby: standby, admin: admin}
	c.open(Options{})
	ids := enqueue(t, c.s, 1)
	_, err = c.s.Ack(t.Context(), acksOf(claimN(t, c.s, 1)))
	require.NoError(t, err)
	require.NoError(t, c.s.Beat(t.Context(), store.Worker{Name: "w", Queues: []string{"q"}, StaleAfter: time.Hour}))
	_, err = c.s.SetSchedule(t.Context(), store.Schedule{Name: "s", Cron: "@daily", Job: benchJobs(1)[0]})
	require.NoError(t, err)
	jobs := benchJobs(2)
	jobs[0].Queue, jobs[1].Queue = "live", "ended"
	more, err := c.s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	_, err = c.s.Cancel(t.Context(), store.Filter{IDs: []int64{more[1].ID}}, 1)
	require.NoError(t, err)
	calls := []writing{
		{name: "cancel", call: func(ctx context.Context) error {
			_, err := c.s.Cancel(ctx, store.Filter{Queue: "live"}, 1)
			return err
		}},
		{name: "requeue", call: func(ctx context.Context) error {
			_, err := c.s.Requeue(ctx, store.Filter{Queue: "ended"}, 1)
			return err
		}},
		{name: "delete", call: func(ctx context.Context) error {
			_, err := c.s.Delete(ctx, store.Filter{IDs: ids}, 1)
			return err
		}},
		{name: "leave", call: func(ctx context.Context) error { return c.s.Leave(ctx, "w") }},
		{name: "delete a schedule", call: func(ctx context.Context) error { return c.s.DeleteSchedule(ctx, "s") }},
	}
	require.NoError(t, standby.Detach(t.Context()))
	for _, when := range []string{"at first", "again"} {
		for i, err := range c.breakOff(calls, len(calls), 0, breaks[1].do) {
			assert.ErrorIs(t, err, store.ErrInDoubt, "%s: %s", when, calls[i].name)
		}
		c.settle()
	}
	require.NoError(t, standby.Attach(t.Context()))
	for _, one := range calls {
		assert.NoError(t, one.call(t.Context()), one.name)
	}
}

// D1, to its end: what was answered ok is there after a failover, be it from before the standby was cut off or from after.
func TestAcknowledgedSurvivesFailoverToAStandbyThatWasCutOff(t *testing.T) {
	t.Parallel() // it waits for time-outs, on servers of its own
	primary, standby := replicated(t)
	admin, err := sql.Open("postgres", primary.DSN+" synchronous_commit=local")
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	c := &cutOff{T: t, primary: primary, standby: standby, admin: admin}
	var acknowledged []writing
	note := func(calls []writing, errs []error) {
		for i, one := range calls {
			if errs[i] == nil {
				acknowledged = append(acknowledged, one)
			}
		}
	}
	c.open(Options{})
	for _, one := range c.writings() {
		require.NoError(t, one.call(t.Context()), one.name)
		acknowledged = append(acknowledged, one)
	}
	before := len(acknowledged)
	for _, b := range breaks[:2] {
		t.Run(b.name, func(t *testing.T) {
			c := &cutOff{T: t, primary: primary, standby: standby, admin: admin}
			c.open(b.options)
			calls := c.writings()
			require.NoError(t, standby.Detach(t.Context()))
			note(calls, c.breakOff(calls, len(calls), 0, b.do))
			c.settle()
			require.NoError(t, standby.Attach(t.Context()))
		})
	}
	last := c.named("last")
	require.NoError(t, standby.Detach(t.Context()))
	note(last, c.breakOff(last, len(last), 0, breaks[1].do))
	c.settle()
	require.NoError(t, primary.Crash(t.Context()))
	require.NoError(t, standby.Promote(t.Context()))
	s := openOn(t, standby.DSN, "after")
	for _, one := range acknowledged {
		one.kept(t, s)
	}
	if t.Failed() {
		return
	}
	figures.Print(t, "%d of %d calls were acknowledged beside a synchronous standby that came and went, and all of them were there after a failover",
		len(acknowledged), before+3*before)
	figures.Count(t, "failovers", 1)
}

// settle breaks off what goes on behind the calls: what gives back the claim, and a commit that is nobody's.
func (c *cutOff) settle() {
	c.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.s.running.Wait()
		c.crowded.running.Wait()
	}()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-done:
			return
		case <-again.C:
			c.signal("pg_cancel_backend")
		}
	}
}

// ofCaller is the commit of a caller's transaction.
func (c *cutOff) ofCaller() writing {
	c.Helper()
	return writing{"commit of a caller", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		tx, err := c.s.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, `SET LOCAL client_min_messages = warning`); err != nil {
			return err
		}
		_, err = c.s.InTx(tx).Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{laterJob(c.Name(), "caller")}})
		if err != nil {
			return err
		}
		if err := tx.Commit(); !errors.Is(err, driver.ErrBadConn) {
			return err
		}
		return store.ErrInDoubt // in the words of the driver
	}, nil}
}

// rested checks that no session was left in a transaction, and that all go on.
func (c *cutOff) rested() {
	c.Helper()
	var left int
	require.NoError(c, c.admin.QueryRowContext(c.Context(), `
		SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'`).Scan(&left))
	assert.Zero(c, left, "sessions in a transaction that nobody ends")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := c.s.Enqueue(c.Context(), store.EnqueueRequest{Jobs: benchJobs(1), RequestKey: ""})
			assert.NoError(c, err)
		})
	}
	all.Wait()
}

// reloaded lets the sessions read the server's configuration anew.
func reloaded(t *testing.T, s *Store, names string) {
	t.Helper()
	_, _ = s.callers.ExecContext(t.Context(), `SELECT pg_reload_conf()`) // not everybody may
	require.Eventually(t, func() bool {
		var now string
		err := s.callers.GetContext(t.Context(), &now, `SELECT current_setting('synchronous_standby_names')`)
		return err == nil && now == names
	}, time.Minute, 10*time.Millisecond)
}
