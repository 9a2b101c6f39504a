//go:build unix

package chaos

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// The ledger and the judge must not blame the store for what is the test's own doing.

func TestASuccessorMakesTheCallOfADeadProducer(t *testing.T) {
	l := openLedger(t, 1)
	t.Cleanup(l.close)
	assert.Equal(t, reply{OK: true, Call: 0}, l.next("first"))
	l.enough = true
	assert.Equal(t, reply{OK: true, Call: 0}, l.next("second"), "the store may have applied it")
	l.calls = append(l.calls, []answer{{ID: 1}})
	assert.Equal(t, reply{OK: false, Call: 1}, l.next("second"))
	assert.Equal(t, reply{OK: true, Call: 0}, l.next("third"), "the repeated call")
	assert.Equal(t, reply{OK: false, Call: 1}, l.next("third"))
}

func TestAProducerThatMayRunAheadIsNotHeldBack(t *testing.T) {
	l := openLedger(t, 1)
	t.Cleanup(l.close)
	l.calls, l.asked, l.jobsIn = [][]answer{{{ID: 1}}}, 1, usually
	l.repeated["first"] = true
	got := make(chan reply, 1)
	go func() { got <- l.next("first") }()
	l.mayRunAhead(usually) // wakes it, for nothing
	select {
	case r := <-got:
		assert.Fail(t, "too many jobs wait", "%v", r)
	default:
	}
	l.mayRunAhead(math.MaxInt)
	select {
	case r := <-got:
		assert.Equal(t, reply{OK: true, Call: 1}, r)
	case <-time.After(patience):
		assert.Fail(t, "the producer is still held back")
	}
}

// Token 3 was given by the database that has lost it. The holder of token 1 has its lease in force again, and finishes the job.
func TestTheEffectOfALostRunDoesNotCount(t *testing.T) {
	for moment, problems := range map[int]int{5: 1, 10: 0} {
		l := openLedger(t, 1)
		t.Cleanup(l.close)
		l.losses = []loss{{from: 9, to: 11}}
		j := &judge{storm: &storm{fleet: &fleet{ledger: l}}}
		p := &page{plan: plan{kind: plain}, effects: []effect{{token: 1, moment: 2}, {token: 3, moment: moment}}}
		row := jq.JobDetail{
			Job: jq.Job{ID: 1, State: jq.Succeeded, Token: 1}, History: []jq.Attempt{{Token: 1, Ending: store.EndSucceeded}},
		}
		j.checkEffects(p, row)
		assert.Len(t, l.problems, problems, "%v", l.problems)
	}
}

// numbersOf are the numbers of the first jobs of the line that are of the kind.
func numbersOf(line, kind string, count int) (all []int) {
	for n := 0; len(all) < count; n++ {
		if p := planOf(1, n); p.limitKey == line && p.queue == orderedQueue && p.kind == kind {
			all = append(all, n)
		}
	}
	return all
}

// A contract about claims is judged by what the ledger hears of runs, which may be late, and of runs that have lost their leases.
func TestTheJudgeFindsJobsOutOfOrder(t *testing.T) {
	const lost = store.Ending("lost") // of a run that the history does not have
	type attempts map[int64]store.Ending
	for name, c := range map[string]struct {
		kind     string
		first    attempts
		second   attempts
		told     []string // what is told of which job and token
		problems int
		inOrder  int
	}{
		"one after the other": {
			told: []string{"start 1.1", "end 1.1", "start 2.1", "end 2.1"}, inOrder: 1,
		},
		"two at once": {
			told: []string{"start 1.1", "start 2.1", "end 1.1", "end 2.1"}, problems: 1,
		},
		"the later one first": {
			told: []string{"start 2.1", "end 2.1", "start 1.1", "end 1.1"}, problems: 1,
		},
		"a retry is overtaken": {
			first: attempts{1: store.EndFailed, 2: store.EndSucceeded},
			told:  []string{"start 1.1", "end 1.1", "start 2.1", "end 2.1", "start 1.2", "end 1.2"}, problems: 1,
		},
		"a job that was put off is overtaken": {
			first: attempts{1: store.EndSnoozed, 2: store.EndFailed},
			told:  []string{"start 1.1", "end 1.1", "start 2.1", "start 1.2", "end 1.2", "end 2.1"}, problems: 1,
		},
		"a job whose worker has died is overtaken": {
			first: attempts{1: store.EndExpired, 3: store.EndSucceeded},
			told:  []string{"start 1.1", "start 2.1", "end 2.1", "start 1.3", "end 1.3"}, problems: 1,
		},
		"both runs of the later one are too early": {
			second: attempts{1: store.EndFailed, 2: store.EndSucceeded},
			told:   []string{"start 1.1", "start 2.1", "end 2.1", "start 2.2", "end 1.1", "end 2.2"}, problems: 2,
		},
		"the first one dies": {
			first: attempts{1: store.EndFailed, 2: store.EndFailed},
			told:  []string{"start 1.1", "end 1.1", "start 1.2", "end 1.2", "start 2.1", "end 2.1"}, inOrder: 1,
		},
		"the first one dies with its worker": {
			first: attempts{1: store.EndFailed, 2: store.EndExpired},
			told:  []string{"start 1.1", "end 1.1", "start 1.2", "start 2.1", "end 2.1"}, inOrder: 1,
		},
		"a run goes on without its lease": {
			first: attempts{1: store.EndExpired, 3: store.EndSucceeded},
			told:  []string{"start 1.1", "start 1.3", "end 1.3", "start 2.1", "end 1.1", "end 2.1"}, inOrder: 1,
		},
		"a run begins without its lease": {
			first: attempts{1: store.EndExpired, 3: store.EndSucceeded},
			told:  []string{"start 1.3", "end 1.3", "start 2.1", "start 1.1", "end 2.1"}, inOrder: 1,
		},
		"a run begins without its lease, and no other one was told of": {
			first: attempts{1: store.EndExpired, 3: store.EndExpired},
			told:  []string{"start 2.1", "start 1.1", "end 1.1", "end 2.1"},
		},
		"the database has lost the run of the later one": {
			second: attempts{1: lost, 1 << 32: store.EndSucceeded},
			told:   []string{"start 1.1", "start 2.1", "end 1.1", fmt.Sprint("start 2.", 1<<32), fmt.Sprint("end 2.", 1<<32)}, inOrder: 1,
		},
		"a transaction is committed before the run ends": {
			kind: within, told: []string{"start 1.1", "start 2.1", "end 1.1", "end 2.1"}, inOrder: 1,
		},
		"two transactions, the later one first": {
			kind: within, told: []string{"start 2.1", "end 2.1", "start 1.1", "end 1.1"}, problems: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.kind == "" {
				c.kind = polite
			}
			l := openLedger(t, 1)
			t.Cleanup(l.close)
			l.note() // no run begins at moment 0
			j := &judge{storm: &storm{fleet: &fleet{ledger: l}, server: &pgtest.Cluster{}}, rows: map[int64]jq.JobDetail{}}
			for i, all := range []attempts{c.first, c.second} {
				if all == nil {
					all = attempts{1: store.EndSucceeded}
				}
				row := jq.JobDetail{Job: jq.Job{ID: int64(i + 1)}}
				for token, ending := range all {
					if ending != lost {
						row.History = append(row.History, jq.Attempt{Token: token, Ending: ending})
					}
				}
				j.rows[row.ID] = row
			}
			for _, text := range c.told {
				m := message{Name: "worker"}
				_, err := fmt.Sscanf(text, "%s %d.%d", &m.Op, &m.Job, &m.Token)
				require.NoError(t, err)
				m.N = numbersOf(lines[0], c.kind, 2)[m.Job-1]
				l.answer(m)
			}
			j.checkOrder()
			assert.Len(t, l.problems, c.problems, "%v", l.problems)
			assert.Equal(t, c.inOrder, j.inOrder, "runs that count")
		})
	}
}

func TestTheJudgeFindsALateJobOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		told               []string // of job 1, which comes late, and two others
		problems, wentNext int
	}{
		"it goes next": {
			told: []string{"start 2.1", "commit 1.0", "end 2.1", "start 1.1", "end 1.1", "start 3.1", "end 3.1"}, wentNext: 1,
		},
		"another one goes before": {
			told: []string{"start 2.1", "commit 1.0", "end 2.1", "start 3.1", "end 3.1", "start 1.1", "end 1.1"}, problems: 1,
		},
		"another one goes before its second run": {
			told: []string{"commit 1.0", "start 1.1", "end 1.1", "start 3.1", "end 3.1", "start 1.2", "end 1.2"}, problems: 1,
		},
		"another one may have been claimed before": {
			told: []string{"commit 1.0", "start 2.1", "end 2.1", "start 1.1", "end 1.1", "start 3.1", "end 3.1"},
		},
		"it may not have been committed yet": {
			told: []string{"start 2.1", "end 2.1", "start 3.1", "end 3.1", "start 1.1", "end 1.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, 1)
			t.Cleanup(l.close)
			j := &judge{storm: &storm{fleet: &fleet{ledger: l}}, rows: map[int64]jq.JobDetail{}}
			numbers := append([]int{firstLate}, numbersOf(lines[firstLate%len(lines)], polite, 2)...)
			l.expect(1, planOf(1, firstLate))
			for _, text := range c.told {
				m := message{Name: "worker"}
				_, err := fmt.Sscanf(text, "%s %d.%d", &m.Op, &m.Job, &m.Token)
				require.NoError(t, err)
				if m.Op == "commit" {
					l.arrived(m.Job)
					continue
				}
				m.N = numbers[m.Job-1]
				l.answer(m)
				if row := j.rows[m.Job]; m.Op == opEnd {
					row.History = append(row.History, jq.Attempt{Token: m.Token, Ending: store.EndFailed})
					j.rows[m.Job] = row
				}
			}
			j.checkLate()
			assert.Len(t, l.problems, c.problems, "%v", l.problems)
			assert.Equal(t, c.wentNext, j.wentNext, "late jobs that went next")
		})
	}
}

// In a file, times tell of claims that never ran. On Postgres they may be those of before the claim waited.
func TestTheJudgeFindsClaimsOutOfOrder(t *testing.T) {
	ended := time.Unix(1000, 0)
	for _, c := range []struct {
		server   *pgtest.Cluster
		claimed  time.Time
		problems int
	}{{nil, ended.Add(-time.Microsecond), 1}, {nil, ended, 0}, {&pgtest.Cluster{}, ended.Add(-time.Microsecond), 0}} {
		l := openLedger(t, 1)
		t.Cleanup(l.close)
		j := &judge{storm: &storm{fleet: &fleet{ledger: l}, server: c.server}, rows: map[int64]jq.JobDetail{
			1: {Job: jq.Job{ID: 1, FinishedAt: ended}},
			2: {Job: jq.Job{ID: 2, FinishedAt: ended.Add(time.Second)}, History: []jq.Attempt{{Token: 1, StartedAt: c.claimed, Ending: store.EndExpired}}},
			3: {Job: jq.Job{ID: 3}, History: []jq.Attempt{{Token: 1, StartedAt: c.claimed, Ending: store.EndSucceeded}}},
		}}
		for i, n := range numbersOf(lines[0], polite, 2) {
			l.page(int64(i+1), planOf(1, n))
		}
		l.page(3, planOf(1, numbersOf(lines[1], polite, 1)[0]))
		j.checkOrder()
		assert.Len(t, l.problems, c.problems, "%v", l.problems)
	}
}

func TestALookFindsJobsOutOfOrder(t *testing.T) {
	job := func(id int64, line string, state jq.State) jq.Job {
		j := jq.Job{ID: id, Queue: orderedQueue, State: state, Extras: &jq.Extras{LimitKey: line}}
		if state == jq.Retrying {
			j.State, j.RetryAt = jq.Failed, time.Unix(1000, 0)
		}
		return j
	}
	for name, c := range map[string]struct {
		first, second, third jq.State // by id; the third one stands in another line
		problems, heldUp     int
	}{
		"all wait":                              {first: jq.Ready, second: jq.Ready, third: jq.Ready},
		"the first ones are in flight":          {first: jq.InFlight, second: jq.Ready, third: jq.InFlight},
		"the first one waits for its retry":     {first: jq.Retrying, second: jq.Ready, third: jq.InFlight, heldUp: 1},
		"two are in flight":                     {first: jq.InFlight, second: jq.InFlight, third: jq.Ready, problems: 1},
		"the second one is in flight":           {first: jq.Ready, second: jq.InFlight, third: jq.Ready, problems: 1},
		"the second one has overtaken a retry":  {first: jq.Retrying, second: jq.InFlight, third: jq.Ready, problems: 1, heldUp: 1},
		"only the job of another line may fail": {first: jq.Ready, second: jq.Ready, third: jq.Retrying},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLedger(t, 1)
			t.Cleanup(l.close)
			s := &storm{fleet: &fleet{ledger: l}}
			var seen sighting
			s.see([]jq.Job{job(3, lines[1], c.third), job(2, lines[0], c.second), job(1, lines[0], c.first)}, &seen)
			assert.Len(t, l.problems, c.problems, "%v", l.problems)
			assert.Equal(t, c.heldUp, seen.heldUp, "lines that a retry holds up")
		})
	}
}
