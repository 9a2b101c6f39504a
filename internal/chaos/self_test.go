//go:build unix

package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq"
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
