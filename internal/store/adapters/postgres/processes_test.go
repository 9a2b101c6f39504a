package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	shareRounds = 40
	shareBatch  = 10
)

// share is one of several processes on one schema: once told to begin, it opens the store, and once told again, it enqueues,
// claims and acks, and prints what it claimed, how long its slowest call took and how long all of it.
func share(dsn, schema string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	told := bufio.NewReader(in)
	fmt.Fprintln(out, "up")
	if _, err := told.ReadString('\n'); err != nil {
		return err
	}
	s, err := Open(ctx, dsn, &Options{Schema: schema})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "open")
	if _, err := told.ReadString('\n'); err != nil {
		return err
	}
	var slowest time.Duration
	timed := func(call func() error) error {
		at := time.Now()
		defer func() { slowest = max(slowest, time.Since(at)) }()
		return call()
	}
	begin := time.Now()
	for range shareRounds {
		var jobs []store.Job
		for _, call := range []func() error{
			func() error {
				_, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: benchJobs(shareBatch)})
				return err
			},
			func() (err error) { jobs, err = s.FetchAndClaim(ctx, claimOf(shareBatch)); return err },
			func() error { _, err := s.Ack(ctx, acksOf(jobs)); return err },
		} {
			if err := timed(call); err != nil {
				return err
			}
		}
		for _, j := range jobs {
			fmt.Fprintln(out, "claimed", j.ID, j.Token)
		}
	}
	fmt.Fprintln(out, "slowest", slowest.Microseconds(), time.Since(begin).Microseconds())
	return s.Close()
}

func TestEightProcessesShareOneSchema(t *testing.T) {
	const processes = 8
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	children := make([]*child, processes)
	for i := range children {
		children[i] = start(t, "share", dsn, schema)
	}
	for _, said := range []string{"up", "open"} { // all at once migrate a schema that is not there yet
		for _, c := range children {
			require.True(t, c.out.Scan(), "a process said that it is %s", said)
			require.Equal(t, said, c.out.Text())
		}
		for _, c := range children {
			_, err := fmt.Fprintln(c.in)
			require.NoError(t, err)
		}
	}
	var mu sync.Mutex // guards what follows
	claimed := map[string]int{}
	var slowest, quickest, longest time.Duration
	var all sync.WaitGroup
	for _, c := range children {
		all.Go(func() {
			for c.out.Scan() {
				var us, total int64
				mu.Lock()
				if n, _ := fmt.Sscanf(c.out.Text(), "slowest %d %d", &us, &total); n == 2 {
					took := time.Duration(total) * time.Microsecond
					slowest, longest = max(slowest, time.Duration(us)*time.Microsecond), max(longest, took)
					if quickest == 0 || took < quickest {
						quickest = took
					}
				} else {
					claimed[c.out.Text()]++
				}
				mu.Unlock()
			}
			assert.NoError(t, c.Wait(), "no error reaches a caller")
		})
	}
	all.Wait()
	for line, times := range claimed {
		assert.Equal(t, 1, times, line)
	}
	s := openStore(t, Options{Schema: schema})
	assert.Equal(t, int64(processes*shareRounds*shareBatch), countIn(t, s, store.Succeeded)+countIn(t, s, store.Ready), "none is lost")
	assert.Equal(t, int64(len(claimed)), countIn(t, s, store.Succeeded), "what was claimed was acked")
	assert.Less(t, slowest, 5*time.Second)
	figures.Print(t, "%d processes on one schema, %d jobs each: slowest call %v, done after %v (first) and %v (last)",
		processes, shareRounds*shareBatch, slowest.Round(time.Millisecond), quickest.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// limitKeys are those of the jobs that writeOn enqueues.
var limitKeys = []string{"customer a", "customer b", "customer c"}

// writeOn writes until it is killed, and says of each call that it was answered. What it claims first it never acks, so that
// every process dies holding something, and its leases are so short that this soon comes back.
func writeOn(dsn, schema string, _ io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, dsn, &Options{Schema: schema})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		jobs := benchJobs(1 + rand.IntN(20))
		for i := range jobs {
			jobs[i].LimitKey = limitKeys[rand.IntN(len(limitKeys))]
		}
		added, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: jobs})
		if err != nil {
			return err
		}
		for _, e := range added {
			fmt.Fprintln(out, "ready", e.ID, 0)
		}
		if _, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: store.MaxItems}); err != nil {
			return err
		}
		claim := claimOf(1 + rand.IntN(20))
		claim.TTL, claim.RetryQuota = 50*time.Millisecond, claim.Limit
		claimed, err := s.FetchAndClaim(ctx, claim)
		if err != nil {
			return err
		}
		for _, j := range claimed {
			fmt.Fprintln(out, "in_flight", j.ID, j.Token)
		}
		if first {
			continue
		}
		outcomes, err := s.Ack(ctx, acksOf(claimed))
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			if o.Status == store.StatusOK {
				fmt.Fprintln(out, "succeeded", o.ID, o.Token)
			}
		}
	}
}

// A ledger is what processes were answered.
type ledger struct {
	furthest map[int64]store.Job // that each job has come
	claims   map[store.Lease]int // how often each was given
}

func newLedger() ledger {
	return ledger{furthest: map[int64]store.Job{}, claims: map[store.Lease]int{}}
}

// rank is how far a job has come under one token. What its recovery makes of it has another.
var rank = map[store.State]int{store.Ready: 0, store.InFlight: 1, store.Succeeded: 2}

// beyond says that the job has come at least as far as the other one.
func beyond(j, other store.Job) bool {
	return j.Token > other.Token || j.Token == other.Token && rank[j.State] >= rank[other.State]
}

func (l ledger) note(t *testing.T, line string) {
	t.Helper()
	var j store.Job
	_, err := fmt.Sscan(line, &j.State, &j.ID, &j.Token)
	require.NoError(t, err, line)
	if j.State == store.InFlight {
		l.claims[j.Lease()]++
	}
	if known, ok := l.furthest[j.ID]; !ok || beyond(j, known) {
		l.furthest[j.ID] = j
	}
}

// check finds every acknowledged job where it was acknowledged to be, or further on its way, and no lease given twice.
func (l ledger) check(t *testing.T, s *Store) {
	t.Helper()
	found, err := listed(t.Context(), s, store.Filter{})
	require.NoError(t, err)
	for id, want := range l.furthest {
		got, there := found[id]
		require.True(t, there, "job %d was acknowledged as %s, and is not there", id, want.State)
		require.True(t, beyond(got, want), "job %d was acknowledged as %s with token %d, and is %s with token %d",
			id, want.State, want.Token, got.State, got.Token)
	}
	for lease, times := range l.claims {
		require.Equal(t, 1, times, "the lease with token %d of job %d was given several times", lease.Token, lease.ID)
	}
}

// takeOver claims, an hour later, what the processes left behind: nobody else is there to do it.
func (l ledger) takeOver(t *testing.T, schema string) {
	t.Helper()
	later := clock.NewMock()
	later.Set(time.Now().Add(time.Hour))
	s := openStore(t, Options{Schema: schema, Clock: later})
	_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: store.MaxItems})
	require.NoError(t, err)
	later.Add(time.Hour)
	claim := claimOf(store.MaxItems)
	claim.RetryQuota = claim.Limit
	jobs, err := s.FetchAndClaim(t.Context(), claim)
	require.NoError(t, err)
	for _, j := range jobs {
		l.note(t, fmt.Sprintln(store.InFlight, j.ID, j.Token))
	}
	l.check(t, s)
}

// listed is every job that matches, by id.
func listed(ctx context.Context, s *Store, filter store.Filter) (map[int64]store.Job, error) {
	found := map[int64]store.Job{}
	for page := (store.Page{Limit: store.MaxItems}); ; {
		part, err := s.List(ctx, filter, page)
		if err != nil {
			return nil, err
		}
		for _, j := range part.Jobs {
			found[j.ID] = j
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			return found, nil
		}
	}
}

// readSome reads a random number of answers.
func (c *child) readSome(t *testing.T, into ledger, most int) {
	t.Helper()
	for range 1 + rand.IntN(most) {
		if !c.out.Scan() {
			return
		}
		into.note(t, c.out.Text())
	}
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	kills := 50
	if race.Enabled {
		kills = 15
	}
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	acknowledged := newLedger()
	for range kills {
		c := start(t, "write", dsn, schema)
		c.readSome(t, acknowledged, 200)
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		for c.out.Scan() { // what it had written before it died was acknowledged too
			acknowledged.note(t, c.out.Text())
		}
		require.Error(t, c.Wait())
	}
	s := openStore(t, Options{Schema: schema})
	acknowledged.check(t, s)
	acknowledged.takeOver(t, schema)
	again := 0
	for lease := range acknowledged.claims {
		if lease.Token > 1 {
			again++
		}
	}
	assert.Positive(t, again, "what a killed process held was given to a later one")
	figures.Print(t, "%d processes killed in the middle of writing, %d acknowledged jobs, 0 lost; %d leases, %d of jobs that came back",
		kills, len(acknowledged.furthest), len(acknowledged.claims), again)
	figures.Count(t, "kills", kills)
	figures.Count(t, "jobs", len(acknowledged.furthest))
}

// Processes claim from a queue with a limit while they are killed one after another, and the limit is lifted and set again. Whoever looks
// at the database never sees more jobs in flight than it allows, in the queue or with one limit key. When it is set, more may be in
// flight, and then only become fewer.
func TestKilledProcessesKeepToALimit(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, which does not see races between processes")
	}
	t.Run("MaxInFlight", func(t *testing.T) {
		keepTo(t, 12, "'all'", func(most int) store.Policy { return store.Policy{MaxInFlight: most} })
	})
	t.Run("MaxPerKey", func(t *testing.T) {
		keepTo(t, 4, "limit_key", func(most int) store.Policy { return store.Policy{MaxPerKey: most} })
	})
}

// Processes claim from a queue with a rate while they are killed one after another. The rows of the jobs tell when each of them was claimed, by whichever
// process: in no span of the rate were more than it allows.
func TestKilledProcessesKeepToARate(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, which does not see races between processes")
	}
	const processes, kills = 3, 12
	rate := store.Rate{N: 60, Per: 250 * time.Millisecond}
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	s := openStore(t, Options{Schema: schema})
	limitTo(t, s, store.Policy{Rate: rate})
	var children []*child
	said := newLedger()
	for range processes {
		children = append(children, start(t, "write", dsn, schema))
	}
	kill := func(c *child) {
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		for c.out.Scan() {
			said.note(t, c.out.Text())
		}
		require.Error(t, c.Wait())
	}
	for n := range kills {
		children[n%processes].readSome(t, said, 400)
		kill(children[n%processes])
		children[n%processes] = start(t, "write", dsn, schema)
	}
	for _, c := range children {
		kill(c)
	}
	enqueue(t, s, rate.N)
	claimN(t, s, rate.N) // as many as the rate still allows, however slow the processes were
	var claims []time.Time
	require.NoError(t, s.callers.Select(&claims, s.sql(`
		SELECT claimed_at FROM {schema}.jobs WHERE claim_token > 0
		UNION ALL
		SELECT started_at FROM {schema}.attempts
		ORDER BY 1`)))
	most, from := 0, 0
	for to, at := range claims {
		for !claims[from].After(at.Add(-rate.Per)) {
			from++
		}
		most = max(most, to-from+1)
	}
	assert.Equal(t, rate.N, most, "jobs that were claimed within %v, of %d", rate.Per, len(claims))
	said.check(t, s)
	said.takeOver(t, schema)
	figures.Print(t, "%d processes killed that claim from a queue with a rate of %d in %v: %d claims, at most %d within it", kills, rate.N, rate.Per, len(claims), most)
	figures.Count(t, "kills", kills)
}

// keepTo sets a policy by which at most so many jobs may be in flight for which the SQL expression has the same value.
func keepTo(t *testing.T, most int, of string, policy func(most int) store.Policy) {
	t.Helper()
	const processes, kills = 3, 25
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	s := openStore(t, Options{Schema: schema})
	limit := func(most int) {
		p, err := s.Policy(t.Context(), "q")
		require.NoError(t, err)
		set := policy(most)
		set.Version = p.Version
		_, err = s.SetPolicy(t.Context(), "q", set)
		require.NoError(t, err)
	}
	looks, reached, exceeded, beyondAtFirst := 0, 0, 0, 0
	crowds := s.sql(`
		SELECT ` + of + ` AS name, count(*) AS jobs
		FROM {schema}.jobs
		WHERE lease_expires_at IS NOT NULL
		GROUP BY 1`)
	look := func(before map[string]int) map[string]int {
		var found []struct {
			Name string
			Jobs int
		}
		require.NoError(t, s.callers.Select(&found, crowds))
		looks++
		now := map[string]int{}
		atLimit, beyond := false, false
		for _, one := range found {
			now[one.Name] = one.Jobs
			atLimit = atLimit || one.Jobs == most
			beyond = beyond || before != nil && one.Jobs > max(most, before[one.Name])
		}
		if atLimit {
			reached++
		}
		if beyond {
			exceeded++
		}
		return now
	}
	limit(most)
	var children []*child
	said := newLedger()
	for range processes {
		children = append(children, start(t, "write", dsn, schema))
	}
	for kill := range kills {
		c := children[kill%processes]
		if kill%5 == 4 {
			limit(0)
			c.readSome(t, said, 100)
			limit(most)
			for _, n := range look(nil) {
				if n > most {
					beyondAtFirst++
					break
				}
			}
		}
		n, before, began := look(nil), reached, time.Now()
		for i := rand.IntN(60); i > 0 || reached == before && time.Since(began) < 10*time.Second; i-- {
			n = look(n)
		}
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		for c.out.Scan() {
			said.note(t, c.out.Text())
		}
		require.Error(t, c.Wait())
		for range 20 {
			n = look(n)
		}
		children[kill%processes] = start(t, "write", dsn, schema)
	}
	for _, c := range children {
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		for c.out.Scan() {
			said.note(t, c.out.Text())
		}
		require.Error(t, c.Wait())
	}
	assert.Zero(t, exceeded, "of %d looks, those that saw more in flight than may be", looks)
	assert.GreaterOrEqual(t, reached, kills, "the limit was reached before each kill")
	said.check(t, s)
	said.takeOver(t, schema)
	figures.Print(t, "%d processes killed that claim from a queue with a limit of %d (%s): %d looks, %d of them at the limit, 0 beyond it; %d times more were in flight when it was set again",
		kills, most, t.Name(), looks, reached, beyondAtFirst)
	figures.Count(t, "kills", kills)
}
