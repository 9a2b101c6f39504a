package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// lasting is a server that loses nothing when it is killed, although it syncs nothing to the disk.
var lasting = pgtest.Options{Network: true, Settings: []string{"synchronous_commit=on"}}

// ownServer starts a server for one test, which may do to it what it likes.
func ownServer(t *testing.T, o pgtest.Options) *pgtest.Cluster {
	t.Helper()
	c, err := pgtest.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	return c
}

// openOn opens a store on a test's own server. The name tells its sessions from others.
func openOn(t *testing.T, dsn, name string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dsn+" application_name="+name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// noLeaks checks at the end that all goroutines have ended which the test has started.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// TestServerDiesInMidCall kills the server under load, again and again: mostly as a whole, to be started by hand, and every
// third time one session of it, after which it starts anew by itself.
func TestServerDiesInMidCall(t *testing.T) {
	deaths := 15
	if race.Enabled {
		deaths = 5
	}
	noLeaks(t)
	c := ownServer(t, pgtest.Options{Durable: true, Network: true})
	stores := []*Store{openOn(t, c.DSN, "socket"), openOn(t, c.TCP, "network")}
	l := newLoad(openOn(t, c.DSN, "judge"))
	l.run(t, 8, stores, func() {
		for i := range deaths {
			l.after(t, 20+rand.IntN(100))
			if i%3 < 2 {
				require.NoError(t, c.Kill(t.Context()))
				require.NoError(t, c.Revive(t.Context()))
				continue
			}
			killSession(t, c, l)
		}
		l.after(t, 200)
	})
	figures.Print(t, "a server killed %d times in mid-call, %d of them by one of its sessions, the stores left open: %v", deaths, deaths/3, l)
	figures.Count(t, "deaths of the server", deaths)
	figures.Count(t, "calls", int(l.answered.Load()))
}

// killSession kills one session of a store, as soon as there is one.
func killSession(t *testing.T, c *pgtest.Cluster, l *load) {
	t.Helper()
	l.patiently(t, func(ctx context.Context) error {
		var pid int
		err := l.judge.db.GetContext(ctx, &pid, `SELECT pid FROM pg_stat_activity WHERE application_name = 'socket' ORDER BY random() LIMIT 1`)
		if err != nil {
			return err
		}
		return c.KillSession(ctx, pid)
	})
}

// TestServerAway kills one server in turn for what needs no syncing to the disk.
func TestServerAway(t *testing.T) {
	c := ownServer(t, lasting)
	for _, k := range []struct {
		claim string
		test  func(t *testing.T, c *pgtest.Cluster)
	}{
		{"OpenFailsUntilItIsBack", openFailsUntilItIsBack},
		{"EveryCallSaysSo", everyCallSaysSo},
		{"WakeUpsComeBack", wakeUpsComeBack},
		{"SessionsEndInMidCall", sessionsEnd},
	} {
		t.Run(k.claim, func(t *testing.T) {
			noLeaks(t)
			k.test(t, c)
		})
	}
}

// sessionsEnd ends sessions under load, one or all of them.
func sessionsEnd(t *testing.T, c *pgtest.Cluster) {
	ends := 300
	if race.Enabled {
		ends = 100
	}
	stores := []*Store{openOn(t, c.DSN, "store"), openOn(t, c.TCP, "store")}
	l := newLoad(openOn(t, c.DSN, "judge"))
	ended := 0
	l.run(t, 8, stores, func() {
		for ended < ends {
			l.after(t, 1+rand.IntN(20))
			most := 1
			if rand.IntN(10) == 0 {
				most = 1000
			}
			var n int
			require.NoError(t, l.judge.db.Get(&n, `
				WITH chosen AS MATERIALIZED (
					SELECT pid
					FROM pg_stat_activity
					WHERE application_name = 'store'
					ORDER BY state = 'idle', random()
					LIMIT $1)
				SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
				FROM chosen`, most))
			ended += n
		}
		l.after(t, 200)
	})
	figures.Print(t, "%d sessions ended in mid-call: %v", ended, l)
	figures.Count(t, "sessions ended", ended)
	figures.Count(t, "calls", int(l.answered.Load()))
}

// wakeUpsComeBack: who has subscribed, be it while the server was away, hears of new jobs when it is back.
func wakeUpsComeBack(t *testing.T, c *pgtest.Cluster) {
	const deaths = 3
	stores, other := []*Store{openOn(t, c.DSN, "listens"), openOn(t, c.TCP, "listens")}, openOn(t, c.DSN, "enqueues")
	var listeners []<-chan store.Wakeup
	subscribe := func(s *Store) {
		wakeups, err := s.Subscribe(t.Context(), nil)
		require.NoError(t, err)
		listeners = append(listeners, wakeups)
	}
	enqueued := 0
	hears := func() {
		enqueued++
		jobs := benchJobs(1)
		jobs[0].Queue = fmt.Sprint("wakes ", enqueued)
		_, err := other.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
		late := time.After(30 * time.Second)
		for _, wakeups := range listeners {
			for w := (store.Wakeup{}); w.Queue != jobs[0].Queue; {
				select {
				case w = <-wakeups:
				case <-late:
					require.Fail(t, "no wake-up came")
				}
			}
		}
	}
	subscribe(stores[0])
	hears()
	var slowest time.Duration
	for range deaths {
		require.NoError(t, c.Kill(t.Context()))
		if len(listeners) < len(stores) {
			subscribe(stores[1])
		}
		require.NoError(t, c.Revive(t.Context()))
		began := time.Now()
		hears() // by asking the server what has come meanwhile, or by being told
		slowest = max(slowest, time.Since(began))
		hears()
	}
	figures.Print(t, "wake-ups came again after each of %d deaths of the server, within %v of its return",
		deaths, slowest.Round(time.Millisecond))
	figures.Count(t, "deaths of the server", deaths)
}

// everyCallSaysSo: every method says at once that nothing was applied.
func everyCallSaysSo(t *testing.T, c *pgtest.Cluster) {
	s := openOn(t, c.DSN, "store")
	id := enqueue(t, s, 1)[0]
	ctx, lease, one := t.Context(), store.Lease{ID: id, Token: 1}, store.Filter{IDs: []int64{id}}
	calls := []struct {
		name string
		call func() error
	}{
		{"Enqueue", func() error { _, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: benchJobs(1)}); return err }},
		{"FetchAndClaim", func() error { _, err := s.FetchAndClaim(ctx, claimOf(1)); return err }},
		{"Extend", func() error { _, err := s.Extend(ctx, []store.Lease{lease}, time.Minute); return err }},
		{"Save", func() error {
			_, err := s.Save(ctx, []store.Save{{Lease: lease, Checkpoint: []byte(`{}`)}})
			return err
		}},
		{"Ack", func() error { _, err := s.Ack(ctx, []store.Ack{{Lease: lease}}); return err }},
		{"NAck", func() error { _, err := s.NAck(ctx, []store.NAck{{Lease: lease}}); return err }},
		{"RecoverExpiredLeases", func() error { _, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 1}); return err }},
		{"Get", func() error { _, err := s.Get(ctx, id); return err }},
		{"List", func() error { _, err := s.List(ctx, one, store.Page{Limit: 1}); return err }},
		{"Count", func() error { _, err := s.Count(ctx, one); return err }},
		{"Cancel", func() error { _, err := s.Cancel(ctx, one, 1); return err }},
		{"Requeue", func() error { _, err := s.Requeue(ctx, one, 1); return err }},
		{"Reschedule", func() error { _, err := s.Reschedule(ctx, one, time.Time{}, 1); return err }},
		{"Delete", func() error { _, err := s.Delete(ctx, one, 1); return err }},
		{"Queues", func() error { _, err := s.Queues(ctx); return err }},
		{"SetPaused", func() error { return s.SetPaused(ctx, "other", false) }},
		{"Policy", func() error { _, err := s.Policy(ctx, "other"); return err }},
		{"SetPolicy", func() error { _, err := s.SetPolicy(ctx, "other", store.Policy{RetainDead: time.Hour}); return err }},
		{"Beat", func() error {
			return s.Beat(ctx, store.Worker{Name: "w", Host: "h", Slots: 1, StaleAfter: time.Minute})
		}},
		{"Workers", func() error { _, err := store.AllWorkers(ctx, s); return err }},
		{"Fence", func() error { _, err := s.Fence(ctx, store.FenceRequest{}); return err }},
	}
	require.NoError(t, c.Kill(t.Context()))
	for _, k := range calls {
		began := time.Now()
		err := k.call()
		assert.ErrorIs(t, err, store.ErrUnavailable, k.name)
		wellSaid(t, err)
		assert.Less(t, time.Since(began), callBound, k.name)
	}
	require.NoError(t, c.Revive(t.Context()))
	for _, k := range calls {
		assert.NoError(t, k.call(), k.name)
	}
}

// openFailsUntilItIsBack opens eight stores while the server is away, and again when it is there.
func openFailsUntilItIsBack(t *testing.T, c *pgtest.Cluster) {
	require.NoError(t, c.Kill(t.Context()))
	stores, errs := make([]*Store, 8), make([]error, 8)
	open := func() {
		var all sync.WaitGroup
		for i := range stores {
			dsn := []string{c.DSN, c.TCP}[i%2]
			all.Go(func() { stores[i], errs[i] = Open(t.Context(), dsn, nil) })
		}
		all.Wait()
	}
	open()
	for i, err := range errs {
		assert.Nil(t, stores[i])
		assert.ErrorIs(t, err, store.ErrUnavailable)
		wellSaid(t, err)
		assert.Contains(t, err.Error(), "no server answers there")
	}
	require.NoError(t, c.Revive(t.Context()))
	open()
	for i, s := range stores {
		require.NoError(t, errs[i])
		enqueue(t, s, 1)
		assert.NoError(t, s.Close())
	}
}

// TestClosedStoreLetsGoOfTheServer closes stores that listen: what brings the wake-ups ends with each.
func TestClosedStoreLetsGoOfTheServer(t *testing.T) {
	noLeaks(t)
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	for range 10 {
		s, err := Open(t.Context(), dsn, &Options{Schema: schema})
		require.NoError(t, err)
		_, err = s.Subscribe(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}
