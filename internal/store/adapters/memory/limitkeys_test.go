package memory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

func ofKey(key string) func(*store.NewJob) {
	return func(n *store.NewJob) { n.LimitKey = key }
}

// limit sets MaxPerKey.
func limit(t testing.TB, s *Store, most int) {
	t.Helper()
	setPolicy(t, s, store.Policy{MaxPerKey: most})
}

func setPolicy(t testing.TB, s *Store, to store.Policy) {
	t.Helper()
	p, err := s.Policy(t.Context(), "q")
	require.NoError(t, err)
	to.Version = p.Version
	_, err = s.SetPolicy(t.Context(), "q", to)
	require.NoError(t, err)
}

// requireKeysAgree counts the jobs of each queue anew, and compares what the queue knows of its keys.
func requireKeysAgree(t *testing.T, s *Store, when string) {
	t.Helper()
	for j := range s.jobs.rising(0) {
		switch {
		case j.phase == inFlight:
			require.Same(t, &s.leases, j.line, "job %d, %s", j.ID, when)
		case j.line != nil && !j.queue.keyed.has(j):
			require.Same(t, j.queue.lane(j.phase).of(j.priority), j.line, "job %d, %s", j.ID, when)
		}
	}
	for _, q := range s.queues {
		if q.keyed == nil {
			require.False(t, q.policy.ByKey(), when)
			continue
		}
		require.Equal(t, q.policy.MaxPerKey, q.keyed.most)
		require.Equal(t, q.policy.Fair, q.keyed.fair)
		held, waiting, lines := map[string]int{}, map[string]int{}, map[*keyLine]int{}
		for j := range s.jobs.rising(0) {
			key := j.limitKey()
			switch {
			case j.queue != q:
			case j.phase == inFlight && key != "":
				held[key]++
			case j.phase != inFlight && j.line != nil && q.keyed.has(j):
				require.NotNil(t, j.line.key, "job %d stands in a line of its key, %s", j.ID, when)
				require.Equal(t, key, j.line.key.of.name)
				waiting[key]++
				lines[j.line.key]++
			}
		}
		known := 0
		for name, key := range q.keyed.keys {
			require.Equal(t, held[name], key.inFlight, "jobs in flight of %s, %s", name, when)
			require.Equal(t, q.policy.MaxPerKey > 0 && key.inFlight >= q.policy.MaxPerKey, key.full)
			require.Positive(t, held[name]+waiting[name], "a key without jobs is forgotten, %s", when)
			for l := key.lines; l != nil; l = l.next {
				known++
				first := l.first(1 << 62)
				require.NotNil(t, first)
				require.Equal(t, lines[l], l.fifo.count+len(l.aside.items))
				require.Same(t, l, l.in.items[l.index].value)
				want, place := l.home, first.at()
				switch {
				case key.full:
					want = &q.keyed.full
				case q.policy.Fair && l.turn == 0:
					want = &q.keyed.waiting
				case q.policy.Fair:
					place = l.turn
				}
				require.Same(t, want, l.in)
				require.Equal(t, []int64{place, first.ID}, []int64{l.in.items[l.index].at, l.in.items[l.index].id})
			}
		}
		require.Len(t, lines, known)
		require.Len(t, q.keyed.keys, len(merged(held, waiting)))
	}
}

func merged(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// TestKeysAgreeWithTheJobs does things at random, some of them in transactions that are rolled back.
func TestKeysAgreeWithTheJobs(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, clk := newStore(t)
		var leases []store.Lease
		lease := func() store.Lease {
			if len(leases) == 0 {
				return store.Lease{ID: 1, Token: 1}
			}
			return leases[random.IntN(len(leases))]
		}
		writes := []func(w store.Writer){
			func(w store.Writer) {
				var jobs []store.NewJob
				for range 1 + random.IntN(6) {
					jobs = append(jobs, plain(ofKey([]string{"", "a", "b", "c", "d"}[random.IntN(5)]), func(n *store.NewJob) {
						n.Priority, n.Delay = random.IntN(3)-1, time.Duration(random.IntN(3))*time.Second
						if random.IntN(5) == 0 {
							n.ExpiresAt = s.last.Add(10 * time.Second)
						}
						if random.IntN(5) == 0 {
							n.UniqueKey, n.Replace = fmt.Sprint(random.IntN(3)), true
						}
					}))
				}
				_, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
				require.NoError(t, err)
			},
			func(w store.Writer) { _, _ = w.Ack(t.Context(), []store.Ack{{Lease: lease()}}) },
			func(w store.Writer) {
				forms := []store.Form{store.Fail, store.Never, store.Snooze, store.Release, store.After}
				_, _ = w.NAck(t.Context(), []store.NAck{{Lease: lease(), Form: forms[random.IntN(len(forms))]}})
			},
		}
		some := func() store.Filter { return store.Filter{IDs: []int64{lease().ID, 1 + random.Int64N(200)}} }
		calls := []func() error{
			func() error {
				jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{
					Queue: "q", Limit: 1 + random.IntN(8), RetryQuota: random.IntN(2), Worker: "w", TTL: time.Duration(1+random.IntN(60)) * time.Second,
				})
				for _, j := range jobs {
					leases = append(leases, j.Lease())
				}
				return err
			},
			func() error { _, err := s.Cancel(t.Context(), some(), 10); return err },
			func() error { _, err := s.Requeue(t.Context(), some(), 10); return err },
			func() error { _, err := s.Delete(t.Context(), some(), 10); return err },
			func() error { _, err := s.Reschedule(t.Context(), some(), s.last.Add(time.Second), 10); return err },
			func() error { _, err := s.Extend(t.Context(), []store.Lease{lease()}, time.Minute); return err },
			func() error {
				_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 3})
				return err
			},
			func() error { _, err := s.Settle(t.Context(), 3); return err },
			func() error { clk.Add(time.Duration(random.IntN(3000)) * time.Millisecond); return nil },
			func() error {
				if random.IntN(4) == 0 {
					setPolicy(t, s, store.Policy{MaxPerKey: []int{0, 1, 2, 5}[random.IntN(4)], Fair: random.IntN(2) == 0})
				}
				return nil
			},
		}
		limit(t, s, 1)
		for step := range 1000 {
			switch dice := random.IntN(10); {
			case dice < 3:
				writes[random.IntN(len(writes))](s)
			case dice < 4:
				before := pictureOf(t, s)
				tx := beginTx(t, s)
				for range 1 + random.IntN(5) {
					writes[random.IntN(len(writes))](s.InTx(tx))
				}
				if random.IntN(2) == 0 {
					require.NoError(t, tx.Commit())
				} else {
					require.NoError(t, tx.Rollback())
					require.Equal(t, before.Jobs, pictureOf(t, s).Jobs)
				}
			default:
				require.NoError(t, calls[random.IntN(len(calls))]())
			}
			requireKeysAgree(t, s, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

// TestNoKeyIsLeftBehind ends every job of many keys.
func TestNoKeyIsLeftBehind(t *testing.T) {
	s, _ := newStore(t)
	limit(t, s, 2)
	var jobs []store.NewJob
	for i := range 900 {
		jobs = append(jobs, plain(ofKey(fmt.Sprint(i/3)), func(n *store.NewJob) { n.Priority = i % 3 }))
	}
	enqueue(t, s, jobs...)
	assert.Len(t, s.queues["q"].keyed.keys, 300)
	for {
		claimed := claim(t, s, 1000)
		if len(claimed) == 0 {
			break
		}
		for i, j := range claimed {
			endSomehow(t, s, []int{0, 3}[i%2], j.Lease())
		}
	}
	assert.Empty(t, s.queues["q"].keyed.keys)
	assert.Empty(t, s.queues["q"].keyed.full.items)
	for i := range s.queues["q"].keyed.fresh {
		assert.Empty(t, s.queues["q"].keyed.fresh[i].items)
	}
}

// TestJobsOfAKeyShareWhatIsRare because there may be many.
func TestJobsOfAKeyShareWhatIsRare(t *testing.T) {
	s, _ := newStore(t)
	answers := enqueue(t, s, plain(ofKey("a")), plain(ofKey("a")), plain(), plain(ofKey("b")))
	rares := func(i int) *rare { return s.jobs.get(answers[i].ID).rare }
	assert.Same(t, rares(0), rares(1))
	assert.Nil(t, rares(2))
	assert.NotSame(t, rares(0), rares(3))
	claimed := claim(t, s, 2)
	_, err := s.Save(t.Context(), []store.Save{{Lease: claimed[0].Lease(), Seq: 1, Checkpoint: []byte("1")}})
	require.NoError(t, err)
	assert.Empty(t, rares(1).checkpoint)
}

// A scene is a queue with many jobs, in which a claim must cost what it costs in a queue without limit keys.
type scene struct {
	what string
	most int // MaxPerKey
	jobs int
	key  func(i int) string // of the i-th job
	held int                // how many are in flight
	next func(i int) string // the limit key of the i-th job that comes while jobs are claimed
}

func noKey(int) string { return "" }

func always(key string) func(int) string { return func(int) string { return key } }

// scenes begins with the queue without limit keys.
var scenes = []scene{
	{"NoKeys", 0, 1_000_000, noKey, 0, noKey},
	{"ManyKeys", 1, 100_000, func(i int) string { return fmt.Sprint(i) }, 0, func(i int) string { return fmt.Sprint("new ", i) }},
	{"ManyJobsOfAFullKey", 1, 1_000_000, always("full"), 1, always("another")},
	{"ManyJobsOfAKeyWithRoom", 2, 1_000_000, always("key"), 1, always("key")},
	{"AllKeysButOneFull", 1, 200_000, func(i int) string { return fmt.Sprint(i / 2) }, 100_000, always("another")},
}

// set returns a store with the scene, in which there are as many times fewer jobs as share says.
func (sc scene) set(t testing.TB, share int) *Store {
	s := New(Options{Clock: clock.New()})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	if sc.most > 0 {
		limit(t, s, sc.most)
	}
	for begin := 0; begin < sc.jobs/share; begin += store.MaxItems {
		var jobs []store.NewJob
		for i := range store.MaxItems {
			jobs = append(jobs, plain(ofKey(sc.key(begin+i))))
		}
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
	}
	for left := max(sc.held/share, min(sc.held, 1)); left > 0; {
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: min(left, store.MaxItems), Worker: "w", TTL: time.Hour})
		require.NoError(t, err)
		require.NotEmpty(t, jobs)
		left -= len(jobs)
	}
	return s
}

// life enqueues, claims, finishes and deletes a job.
func (sc scene) life(t testing.TB, s *Store, i int) {
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain(ofKey(sc.next(i)))}})
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	_, err = s.Ack(t.Context(), []store.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), store.Filter{IDs: []int64{jobs[0].ID}}, 1)
	require.NoError(t, err)
}

// TestKeysCostAlike compares with a queue without keys. A claim that looked at each key or at each job would take a thousand times as long.
func TestKeysCostAlike(t *testing.T) {
	const rounds, factor = 1000, 20
	share := 4
	if race.Enabled {
		share = 40
	}
	took := map[string]time.Duration{}
	for _, sc := range scenes {
		s := sc.set(t, share)
		best := time.Hour
		for range 5 {
			began := time.Now()
			for i := range rounds {
				sc.life(t, s, i)
			}
			best = min(best, time.Since(began))
		}
		took[sc.what] = best
		t.Logf("%s: %v for %d jobs", sc.what, best, rounds)
		assert.LessOrEqual(t, best, factor*took[scenes[0].what], sc.what)
	}
}

// BenchmarkKeys is a job's whole life in each of the scenes.
func BenchmarkKeys(b *testing.B) {
	for _, sc := range scenes {
		b.Run(sc.what, func(b *testing.B) {
			s := sc.set(b, 1)
			runtime.GC()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sc.life(b, s, i)
			}
		})
	}
}
