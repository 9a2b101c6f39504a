package postgres

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// The server behind PgBouncer comes back without what the store did last. Its connections go on, and no sweep helps: all jobs
// that are due again, and a lease that has expired again, are found by signs alone.
func TestJobsThatAreDueAgainOnAnotherServerAreFound(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		claim  string
		epoch  int64 // that follows
		before func(t *testing.T, c *pgtest.Cluster) (goBack func() (dsn string))
	}{
		{"AfterAFailoverWithLoss", 1, func(t *testing.T, c *pgtest.Cluster) func() string {
			standby := standbyOf(t, c)
			require.NoError(t, standby.Detach(t.Context()))
			return func() string {
				require.NoError(t, c.Crash(t.Context()))
				require.NoError(t, standby.Promote(t.Context()))
				return standby.DSN
			}
		}},
		{"AfterARestore", 0, func(t *testing.T, c *pgtest.Cluster) func() string {
			require.NoError(t, c.Keep(t.Context()))
			return func() string {
				require.NoError(t, c.PutBack(t.Context()))
				return c.DSN
			}
		}},
	} {
		t.Run(k.claim, func(t *testing.T) {
			t.Parallel()
			const many = 200
			c := ownServer(t, lasting)
			direct := openOn(t, c.DSN, "direct")
			ids := enqueue(t, direct, many)
			short := claimOf(1)
			short.TTL = time.Microsecond
			expired, err := direct.FetchAndClaim(t.Context(), short)
			require.NoError(t, err)
			require.Equal(t, ids[0], expired[0].ID)
			require.NoError(t, direct.Close())
			goBack := k.before(t, c)

			p := pgtest.NewPooler(t, c.DSN)
			s, err := Open(t.Context(), p.DSN, &Options{Pooled: true})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			s.sweeper.pace(never)
			recovery := func() []store.Recovered {
				done, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				return done
			}
			require.Len(t, recovery(), 1)
			_, err = s.Ack(t.Context(), acksOf(claimN(t, s, many)))
			require.NoError(t, err)
			_, err = s.Cancel(t.Context(), store.Filter{IDs: ids[:1]}, 1)
			require.NoError(t, err)
			past := time.Now()
			require.Eventually(t, func() bool {
				require.Empty(t, claimN(t, s, 1))
				require.Empty(t, recovery())
				leases := s.leases()
				return s.cursors.Get("q").Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)].At.After(past) && leases.At.After(past)
			}, time.Minute, time.Millisecond, "the marks do not move")

			require.NoError(t, p.Pause(t.Context()))
			require.NoError(t, p.PointAt(t.Context(), goBack()))
			require.NoError(t, p.Resume(t.Context()))
			began := time.Now()
			recovered := recovery()
			if assert.Len(t, recovered, 1, "the lease stays hidden") {
				assert.Equal(t, k.epoch, (recovered[0].Token-1)/store.FenceStep, "the epoch of token %d", recovered[0].Token)
			}
			for left := many - 1; left > 0; {
				jobs := claimN(t, s, many)
				for _, j := range jobs {
					assert.Equal(t, k.epoch, (j.Token-1)/store.FenceStep, "the epoch of token %d", j.Token)
				}
				left -= len(jobs)
				require.Less(t, time.Since(began), 10*bound, "%d jobs stay hidden", left)
			}
			assert.Equal(t, k.epoch, epochOf(t, s))
		})
	}
}

func epochOf(t *testing.T, s *Store) (epoch int64) {
	t.Helper()
	require.NoError(t, s.callers.GetContext(t.Context(), &epoch, s.sql(`SELECT epoch FROM {schema}.fence`)))
	return epoch
}

// warnsOfAnother says whether the store warns that the database is another one.
func warnsOfAnother(t *testing.T, s *Store) bool {
	t.Helper()
	found, err := s.Warnings(t.Context())
	require.NoError(t, err)
	return slices.ContainsFunc(found, func(f store.Finding) bool { return f.Name == "another_server" })
}

// Data that were dumped from another server are met by several stores at once, which claim, recover, enqueue, and write in callers'
// transactions. None gives a token or an id of the time before, the epoch is raised once, and a lease in force goes on.
func TestDataOfAnotherServerAreFencedBeforeAnythingIsGiven(t *testing.T) {
	t.Parallel()
	const stores = 8
	const raised = 1
	for _, change := range []string{`system = system + 1`, `timeline = timeline + 1`} {
		first := openStore(t, Options{})
		enqueue(t, first, 10*stores)
		held := claimN(t, first, 2)
		require.Len(t, held, 2)
		require.Zero(t, epochOf(t, first), "a server of which nothing is known is not another one")
		require.False(t, warnsOfAnother(t, first))
		result, err := first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.fence SET `+change+` WHERE system IS NOT NULL`))
		require.NoError(t, err)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "nobody has noted who the server is")

		var told bytes.Buffer
		var all sync.WaitGroup
		for i := range stores {
			o := Options{Schema: first.options.Schema}
			if i == 0 {
				o.Logger = slog.New(slog.NewTextHandler(&told, nil))
			}
			s := openStore(t, o)
			if i == 0 { // alone, in a caller's transaction that lasts and is rolled back: nobody has to wait for it
				tx, err := s.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.Greater(t, enqueue(t, s.InTx(tx), 1)[0], store.Floor(raised))
				require.Equal(t, int64(raised), epochOf(t, first))
				require.NoError(t, tx.Rollback())
				assert.Contains(t, told.String(), "the epoch was raised")
				assert.True(t, warnsOfAnother(t, first))
			}
			all.Go(func() {
				switch i % 4 {
				case 0:
					for _, j := range claimN(t, s, 5) {
						assert.Equal(t, store.Floor(raised)+1, j.Token)
					}
				case 1:
					assert.Greater(t, enqueue(t, s, 1)[0], store.Floor(raised))
				case 2:
					tx, err := s.DB().BeginTx(t.Context(), nil)
					if assert.NoError(t, err) {
						assert.Greater(t, enqueue(t, s.InTx(tx), 1)[0], store.Floor(raised))
						assert.NoError(t, tx.Commit())
					}
				default:
					outcomes, err := s.Cancel(t.Context(), store.Filter{IDs: []int64{held[1].ID}}, 1)
					if assert.NoError(t, err) {
						assert.GreaterOrEqual(t, outcomes[0].Token, store.Floor(raised)+1)
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, int64(raised), epochOf(t, first))
		outcomes, err := first.Ack(t.Context(), acksOf(held[:1]))
		require.NoError(t, err)
		assert.Equal(t, store.StatusOK, outcomes[0].Status)

		findings, err := first.Examine(t.Context())
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(findings, func(f store.Finding) bool { return f.Name == "another_server" }), "%v", findings)
	}
}

// A store has gone on with a standby that was promoted, and its way leads back to the old primary, which somebody has left running.
func TestAReplacedServerIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	old := ownServer(t, lasting)
	p := pgtest.NewPooler(t, old.DSN)
	s, err := Open(t.Context(), p.DSN, &Options{Pooled: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	enqueue(t, s, 2)
	lead := func(to string) {
		require.NoError(t, p.Pause(t.Context()))
		require.NoError(t, p.PointAt(t.Context(), to))
		require.NoError(t, p.Resume(t.Context()))
	}
	standby := standbyOf(t, old)
	require.NoError(t, standby.Promote(t.Context()))
	lead(standby.DSN)
	enqueue(t, s, 2)
	direct := openOn(t, old.DSN, "direct")
	for range 2 {
		lead(old.DSN)
		before := countIn(t, direct, store.Ready)
		_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.ErrorContains(t, err, "replaced by another")
		_, err = s.FetchAndClaim(t.Context(), claimOf(1))
		require.ErrorIs(t, err, store.ErrUnavailable)
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NoError(t, tx.Rollback())
		require.Equal(t, before, countIn(t, direct, store.Ready))
		lead(standby.DSN)
		enqueue(t, s, 1)
		require.NoError(t, old.Kill(t.Context())) // and the second time it has been started anew
		require.NoError(t, old.Revive(t.Context()))
	}
}

// The connections of callers to a server that was replaced are given up, those that nobody uses and those of transactions: database/sql would use them for ever.
func TestCallersLeaveAReplacedServer(t *testing.T) {
	t.Parallel()
	old := ownServer(t, lasting)
	standby := standbyOf(t, old)
	s, err := Open(t.Context(), severalHosts(t, standby, old), nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	begin := func() *sql.Tx {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	lasts, passes := begin(), begin()
	enqueue(t, s.InTx(passes), 1)
	require.NoError(t, passes.Commit())
	require.NoError(t, standby.CaughtUp(t.Context()))

	require.NoError(t, standby.Promote(t.Context()))
	open := openTxn(t, s)
	open.end(errReplaced) // its connection leads to the old server
	enqueue(t, s, 1)
	_, err = s.InTx(lasts).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.NoError(t, lasts.Rollback())
	for range 3 {
		tx := begin()
		enqueue(t, s.InTx(tx), 1)
		require.NoError(t, tx.Commit())
	}
	assert.Equal(t, int64(5), countIn(t, openOn(t, standby.DSN, "direct"), store.Ready))
}

// severalHosts is the DSN of servers whose hosts are tried in this order.
func severalHosts(t *testing.T, servers ...*pgtest.Cluster) string {
	t.Helper()
	both := map[string]string{}
	for _, c := range servers {
		config, err := pq.NewConfig(c.DSN)
		require.NoError(t, err)
		both["host"] += "," + config.Host
		both["port"] += "," + strconv.Itoa(int(config.Port))
	}
	return "host=" + both["host"][1:] + " port=" + both["port"][1:] + " user=postgres dbname=postgres sslmode=disable"
}

// A DSN names a standby before the primary. Calls, wake-ups and callers' transactions go to the primary all the same.
func TestSeveralHostsLeadFromAStandbyToThePrimary(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	require.NoError(t, openOn(t, primary.DSN, "first").Close())
	standby := standbyOf(t, primary)
	pairs := severalHosts(t, standby, primary)
	config, err := url.ParseQuery(strings.ReplaceAll(pairs, " ", "&"))
	require.NoError(t, err)
	other := openOn(t, primary.DSN, "other")
	for _, dsn := range []string{
		pairs,
		"postgres://postgres@/postgres?sslmode=disable&host=" + url.QueryEscape(config.Get("host")) + "&port=" + config.Get("port"),
	} {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		reachesPrimary(t, s, other)
		require.NoError(t, s.Close())
	}
}

// reachesPrimary checks that the calls of a store, the transactions of its callers and its wake-ups reach the server of another store.
func reachesPrimary(t *testing.T, s, other *Store) {
	t.Helper()
	wakeups, err := s.Subscribe(t.Context(), nil)
	require.NoError(t, err)
	enqueue(t, s, 1)
	require.Len(t, claimN(t, s, 1), 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	enqueue(t, s.InTx(tx), 1)
	require.NoError(t, tx.Commit())
	require.Len(t, claimN(t, s, 1), 1)
	for len(wakeups) > 0 {
		<-wakeups
	}
	enqueue(t, other, 1)
	select {
	case <-wakeups:
	case <-time.After(time.Minute):
		t.Fatal("no wake-up comes from the primary")
	}
	require.Len(t, claimN(t, s, 1), 1)
}

// With several hosts, a store looks for the one that accepts writes, and waits two seconds for each, unless the DSN says otherwise. With one host nothing
// changes.
func TestHostsOfADSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]struct {
		attrs   pq.TargetSessionAttrs
		timeout time.Duration
	}{
		"postgres://jobs:p%2Fw%3F@a/jobs":                                       {"", 0},
		"postgres://jobs:p%2Fw%3F@a,b/jobs":                                     {"read-write", 2 * time.Second},
		"postgres://jobs:p%2Fw%3F@a,b/jobs#x":                                   {"read-write", 2 * time.Second},
		"postgres://jobs:p%2Fw%3F@a,b/jobs?connect_timeout=0":                   {"read-write", 2 * time.Second},
		"postgres://jobs:p%2Fw%3F@/jobs?host=a,b&port=1,2":                      {"read-write", 2 * time.Second},
		"postgresql://jobs:p%2Fw%3F@a,b/jobs?target_session_attrs=any":          {"any", 2 * time.Second},
		"postgres://jobs:p%2Fw%3F@a,b/jobs?connect_timeout=9":                   {"read-write", 9 * time.Second},
		"host=a user=jobs password=p/w? dbname=jobs":                            {"", 0},
		"host=a,b user=jobs password=p/w? dbname=jobs":                          {"read-write", 2 * time.Second},
		"host=a,b user=jobs password=p/w? dbname=jobs connect_timeout=9":        {"read-write", 9 * time.Second},
		"host=a,b user=jobs password='p/w?' dbname=jobs connect_timeout=0":      {"read-write", 2 * time.Second},
		"dbname=jobs host=a,b target_session_attrs=any user=jobs password=p/w?": {"any", 2 * time.Second},
	} {
		_, config, err := toPrimary(dsn)
		require.NoError(t, err, dsn)
		assert.Equal(t, want.attrs, config.TargetSessionAttrs, dsn)
		assert.Equal(t, want.timeout, config.ConnectTimeout, dsn)
		assert.Equal(t, []string{"jobs", "p/w?", "jobs"}, []string{config.User, config.Password, config.Database}, dsn)
	}
	_, config, err := toPrimary("user=jobs password=a://b host=a,b")
	require.NoError(t, err)
	assert.Equal(t, "a://b", config.Password)
}

// The first host of a DSN is a machine that does not answer: it takes connections and says nothing, as one that has stopped. Calls, wake-ups and
// callers' transactions go to the next one all the same.
func TestSilentHostIsPassedOver(t *testing.T) {
	t.Parallel()
	server := pgtest.DSN(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system answers for those who never accept
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, silent.Close()) })
	config, err := pq.NewConfig(server)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(silent.Addr().String())
	require.NoError(t, err)
	dsn := fmt.Sprintf("host=127.0.0.1,%s port=%s,%d user=%s password='%s' dbname=%s sslmode=disable",
		config.Host, port, config.Port, config.User, config.Password, config.Database)
	options := &Options{Schema: pgtest.Schema(t, server)}
	other, err := Open(t.Context(), server, options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, other.Close()) })

	s, err := Open(t.Context(), dsn, options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	reachesPrimary(t, s, other)
}

// A standby answers those who read. Whoever writes next learns that it is unavailable, and not that a right is missing.
func TestAStandbyThatAnswersReadersIsUnavailable(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	require.NoError(t, openOn(t, primary.DSN, "first").Close())
	standby := standbyOf(t, primary)
	s, err := Open(t.Context(), standby.DSN, &Options{NoMigrate: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	for range 3 {
		_, err = s.Get(t.Context(), 1)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NotErrorIs(t, err, store.ErrDenied)
		_, err = s.FetchAndClaim(t.Context(), claimOf(1))
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
}
