package conformance

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// matrixCases is every operation on every phase, a case for each operation. What is legal comes from the table of
// transitions, so that a row that changes there changes the suite.
var matrixCases = matrixOf(store.Transitions)

// matrixSentences are what a case proves beside the table.
var matrixSentences = map[store.Op][]string{
	store.OpClaim: {
		"A dead job is never claimed.",
		"Each claimed job becomes in_flight, and its token and its attempts grow by one. Its ClaimedAt is now, its lease runs until now plus TTL, its worker is the one that the request names, its RetryAt is cleared, and the numbers of its saves start again at 0.",
		"The job's checkpoint, progress, retries and error do not change.",
	},
	store.OpRecover: {"Each of these jobs fails as by NAck, with the reason \"lease expired\" and with a new token. Its attempts do not change."},
	store.OpAck: {
		"Ack finishes jobs whose work is done: each job becomes succeeded, its lease ends, and its result is kept.",
		"A lease that has expired but was not recovered yet is still valid.",
		"Such a job still counts as finished by Ack.", "If a job is not in flight, even its current token is stale, unless the holder of the lease with that token finished the job.",
	},
	store.OpFail: {
		"Fail, Never and After count as one way of ending a lease.",
		"The state failed covers two phases, retrying and dead: a retrying job has a RetryAt, and a dead job has none.",
	},
	store.OpRelease: {"A released claim stays in the history, although it does not count as an attempt."},
	store.OpExtend: {
		"A lease that has expired but was not recovered yet can still be extended.",
		"ok the job is in flight under this token; Next is the end of its lease;", "cancelled the job is cancelled, whatever the token;",
		"stale the lease was ended by someone else;",
	},
	store.OpSave: {
		"Save stores a checkpoint, a progress document, or both, for each job that is in flight under the token.",
		"ok the job is in flight under this token;", "stale the job is not in flight under this token;",
	},
	store.OpCancel:     {"ok the job is cancelled now, or was before;", "wrong_state the job has succeeded or is dead;"},
	store.OpUnblock:    {"A blocked job becomes ready when its last wait is met, and is due at the later of that now and the time that was asked for."},
	store.OpRequeue:    {"ok the job is ready or blocked now;", "wrong_state the job is not terminal;"},
	store.OpReschedule: {"ok the job is due at that time now, or was before;", "wrong_state the job is blocked, in flight or terminal;", sentenceHolds},
	store.OpDelete:     {"ok the job is gone;", "wrong_state the job is not terminal;"},
}

func matrixOf(table []store.Transition) []Case {
	var cases []Case
	for _, t := range table {
		cases = append(cases, Case{
			Name: "Matrix/" + strings.ToUpper(string(t.Op[:1])) + string(t.Op[1:]),
			Sentence: strings.Join(append(matrixSentences[t.Op],
				"Transitions is the table of legal transitions: an operation does not change a job in any phase other than those of its row.",
				"not_found the job does not exist, or no longer exists."), "\n"),
			Run: func(c *C) { matrixRow(c, t) },
		})
	}
	return cases
}

// Steps of a script that are no operation of the table.
const (
	stepExpire store.Op = "expire"         // the lease runs out
	stepRefuse store.Op = "ack, malformed" // an Ack whose result is refused
)

// A situation is a way into a phase: the same phase is reached with and without a holder that finished the job, and stores
// that tell them apart by the token alone get some of them wrong.
type situation struct {
	name   string
	script []store.Op
	phase  store.State
	by     store.Op // how the holder of the latest lease finished the job; empty if it did not
	waits  bool     // for another job
}

var situations = []situation{
	{"fresh", nil, store.Ready, "", false},
	{"snoozed", []store.Op{store.OpClaim, store.OpSnooze}, store.Ready, store.OpSnooze, false},
	{"released", []store.Op{store.OpClaim, store.OpRelease}, store.Ready, store.OpRelease, false},
	{"released after failing", []store.Op{store.OpClaim, store.OpFail, store.OpClaim, store.OpRelease}, store.Ready, store.OpRelease, false},
	{"requeued", []store.Op{store.OpClaim, store.OpAck, store.OpRequeue}, store.Ready, "", false},
	{"rescheduled after a snooze", []store.Op{store.OpClaim, store.OpSnooze, store.OpReschedule}, store.Ready, "", false},
	{"rescheduled after failing", []store.Op{store.OpClaim, store.OpAfter, store.OpReschedule}, store.Retrying, "", false},
	{"in flight", []store.Op{store.OpClaim}, store.InFlight, "", false},
	{"in flight after failing", []store.Op{store.OpClaim, store.OpFail, store.OpClaim}, store.InFlight, "", false},
	{"in flight under an expired lease", []store.Op{store.OpClaim, stepExpire}, store.InFlight, "", false},
	{"in flight for the last time", []store.Op{
		store.OpClaim, store.OpFail, store.OpClaim, store.OpFail, store.OpClaim, store.OpFail, store.OpClaim,
	}, store.InFlight, "", false},
	{"failed", []store.Op{store.OpClaim, store.OpFail}, store.Retrying, store.OpFail, false},
	{"failed with a delay", []store.Op{store.OpClaim, store.OpAfter}, store.Retrying, store.OpAfter, false},
	{"recovered", []store.Op{store.OpClaim, stepExpire, store.OpRecover}, store.Retrying, "", false},
	{"succeeded", []store.Op{store.OpClaim, store.OpAck}, store.Succeeded, store.OpAck, false},
	{"dead by never", []store.Op{store.OpClaim, store.OpNever}, store.Dead, store.OpNever, false},
	{"dead by a refused result", []store.Op{store.OpClaim, stepRefuse}, store.Dead, store.OpAck, false},
	{"dead by expiry", []store.Op{
		store.OpClaim, store.OpFail, store.OpClaim, store.OpFail, store.OpClaim, store.OpFail, store.OpClaim, stepExpire, store.OpRecover,
	}, store.Dead, "", false},
	{"cancelled", []store.Op{store.OpCancel}, store.Cancelled, "", false},
	{"cancelled in flight", []store.Op{store.OpClaim, store.OpCancel}, store.Cancelled, "", false},
	{"cancelled while retrying", []store.Op{store.OpClaim, store.OpFail, store.OpCancel}, store.Cancelled, "", false},
	{"blocked", nil, store.Blocked, "", true},
	{"unblocked", []store.Op{store.OpUnblock}, store.Ready, "", true},
	{"cancelled while blocked", []store.Op{store.OpCancel}, store.Cancelled, "", true},
	{"deleted", []store.Op{store.OpClaim, store.OpAck, store.OpDelete}, store.Gone, "", false},
}

func matrixRow(c *C, t store.Transition) {
	for _, phase := range c.phases() {
		c.True(slices.ContainsFunc(situations, func(s situation) bool { return s.phase == phase }), "a situation reaches %s", phase)
	}
	reached := map[store.State]bool{}
	for _, s := range situations {
		if s.waits && c.noWaits {
			continue
		}
		m := &matrixJob{C: c, situation: s}
		m.bring()
		m.refusals(t)
		if to, ok := m.legal(t); ok {
			reached[to] = true
		}
		if d, ok := lookAt(c, m.id); ok && d.State == store.InFlight {
			c.Ack(d.Lease()) // or it would expire among the next ones
		}
	}
	want := slices.DeleteFunc(slices.Sorted(slices.Values(t.To)), func(to store.State) bool { return to == store.Blocked && c.noWaits })
	c.Equal(slices.Sorted(maps.Keys(reached)), want, "the phases that %s leads to", t.Op)
}

// A matrixJob is a job on its way through one cell of the matrix. It waits in a queue of its own.
type matrixJob struct {
	*C
	situation
	id     int64
	held   store.Lease // the latest that was handed out
	parent int64       // the job that it waits for, or zero
}

// parents is the queue of the job that the job waits for.
func (m *matrixJob) parents() string { return "before " + m.name }

func (m *matrixJob) bring() {
	var after []store.Wait
	if m.waits {
		m.parent = m.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = m.parents() }))[0]
		after = []store.Wait{{ID: m.parent}}
	}
	m.id = m.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.After = m.name, after }))[0]
	m.held = store.Lease{ID: m.id}
	for _, step := range m.script {
		d := m.Get(m.id)
		switch step {
		case stepExpire:
			m.Advance(d.LeaseExpiresAt.Sub(m.Now()))
		case stepRefuse:
			m.One(m.Store.Ack(m.Ctx, []store.Ack{{Lease: m.held, Result: []byte("{")}}))
		case store.OpClaim:
			m.Advance(max(0, d.Next().Sub(m.Now())))
			m.try(step, d.Lease())
			m.held = m.Get(m.id).Lease()
			m.One(m.Store.Save(m.Ctx, []store.Save{{Lease: m.held, Seq: 3, Checkpoint: []byte(`"kept"`), Progress: []byte(`"seen"`)}}))
		default:
			m.try(step, m.held)
		}
	}
	if d, ok := lookAt(m.C, m.id); ok && d.Phase() != m.phase || !ok && m.phase != store.Gone {
		m.Fatalf("bringing a job to %q by %v: got %s, want %s", m.name, m.script, d.Phase(), m.phase)
	}
	m.Advance(time.Second) // so that a change that should not be shows in its times
}

// refusals tries the operation with every lease that does not entitle to it, the same call also where the phase forbids it.
func (m *matrixJob) refusals(t store.Transition) {
	before, there := lookAt(m.C, m.id)
	legal := there && slices.Contains(t.From, m.phase)
	tokens := []int64{before.Token, m.held.Token, before.Token - 1, before.Token + 1, 0}
	if t.Guard != "token" {
		tokens = tokens[:1]
	}
	for i, token := range tokens {
		l := store.Lease{ID: m.id, Token: token}
		if slices.Contains(tokens[:i], token) || legal && (t.Guard != "token" || l == before.Lease()) {
			continue
		}
		m.leaves(t.Op, l, before, there)
	}
}

func (m *matrixJob) leaves(op store.Op, l store.Lease, before store.JobDetail, there bool) {
	status := m.refusal(op, l, before, there)
	want := store.Outcome{ID: m.id, Status: status}
	if there && status != "" {
		want = store.OutcomeOf(before.Job, status)
	}
	m.Equal(m.try(op, l), want, "%s with token %d on a job that is %s", op, l.Token, m.name)
	after, still := lookAt(m.C, m.id)
	if op == store.OpUnblock { // of which the wait knows
		after.Waits = before.Waits
	}
	m.Equal(after, before, "a job that is %s, after %s with token %d", m.name, op, l.Token)
	m.Equal(still, there, "whether a job that is %s is there, after %s", m.name, op)
}

// refusal is the status that the contract gives to an operation that changes nothing, empty where there is no outcome.
func (m *matrixJob) refusal(op store.Op, l store.Lease, d store.JobDetail, there bool) store.Status {
	mine := m.by != "" && l == m.held && l == d.Lease()
	switch {
	case op == store.OpClaim || op == store.OpRecover || op == store.OpUnblock:
		return ""
	case !there:
		return store.StatusNotFound
	case op == store.OpCancel && m.phase == store.Cancelled:
		return store.StatusOK
	case op == store.OpCancel || op == store.OpRequeue || op == store.OpReschedule || op == store.OpDelete:
		return store.StatusWrongState
	case op == store.OpExtend && m.phase == store.Cancelled:
		return store.StatusCancelled
	case op == store.OpExtend && mine:
		return store.StatusFinished
	case op != store.OpExtend && op != store.OpSave && mine && wayOf(op) == wayOf(m.by):
		return store.StatusOK
	default:
		return store.StatusStale
	}
}

// legal does the operation as its holder, or whoever may, and checks that what it changes is what the table says.
func (m *matrixJob) legal(t store.Transition) (to store.State, ok bool) {
	before, there := lookAt(m.C, m.id)
	if !there || !slices.Contains(t.From, m.phase) {
		return "", false
	}
	if wait := before.Next().Sub(m.Now()); m.phase != store.Blocked && (t.Op == store.OpClaim || t.Op == store.OpRecover) && wait > 0 {
		m.Advance(wait - store.Resolution)
		m.leaves(t.Op, before.Lease(), before, there)
		m.Advance(store.Resolution)
	}
	want, outcome := store.JobDetail{}, store.Outcome{ID: m.id, Status: store.StatusOK}
	if t.Op != store.OpDelete {
		want = becomes(t.Op, before, m.Now())
		if m.waits && t.Op == store.OpRequeue { // for a job that has not ended
			want.State = store.Blocked
		}
		outcome = store.OutcomeOf(want.Job, store.StatusOK)
	}
	m.Equal(m.try(t.Op, before.Lease()), outcome, "%s on a job that is %s", t.Op, m.name)
	after, still := lookAt(m.C, m.id)
	if t.Op == store.OpRequeue && m.phase == store.Succeeded { // the numbers of documents that are no more say nothing
		want.CheckpointSeq, want.ProgressSeq = after.CheckpointSeq, after.ProgressSeq
	}
	m.Equal(after, want, "a job that was %s, after %s", m.name, t.Op)
	m.Equal(still, t.Op != store.OpDelete, "whether a job that was %s is there, after %s", m.name, t.Op)
	if !still {
		return store.Gone, true
	}
	return after.Phase(), true
}

// try does the operation on the job alone. A claim and a recovery that take nothing give an outcome without a status.
func (m *matrixJob) try(op store.Op, l store.Lease) store.Outcome {
	switch op {
	case store.OpClaim:
		for _, j := range m.ClaimBy(store.ClaimRequest{Queue: m.name, Limit: 10, Worker: worker, TTL: ttl}) {
			m.Equal(j, m.Get(m.id).Job, "the claimed row, against the stored one")
			return store.OutcomeOf(j, store.StatusOK)
		}
	case store.OpRecover:
		for _, r := range m.Recover(10) {
			m.Equal(r.ID, m.id, "the only job with an expired lease")
			return store.Outcome{ID: r.ID, Status: store.StatusOK, State: r.State, Token: r.Token, Next: r.Next}
		}
	case store.OpUnblock:
		for _, j := range m.ClaimBy(store.ClaimRequest{Queue: m.parents(), Limit: 1, Worker: worker, TTL: ttl}) {
			before := m.Get(m.id)
			m.Ack(j.Lease())
			if d := m.Get(m.id); d.State != before.State {
				return store.OutcomeOf(d.Job, store.StatusOK)
			}
		}
	case store.OpCancel:
		return m.Cancel(m.id)
	case store.OpRequeue:
		return m.Requeue(m.id)
	case store.OpReschedule:
		return m.Reschedule(m.id, time.Time{})
	case store.OpDelete:
		return m.Delete(m.id)
	default:
		return underLease(m.C, op, l)
	}
	return store.Outcome{ID: m.id}
}
