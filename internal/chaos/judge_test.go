//go:build unix

package chaos

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// A judge compares what the store has kept with the ledger, when all has come to rest.
type judge struct {
	*storm
	rows    map[int64]jq.JobDetail
	effects map[int64][]int64 // the tokens of those in the database, by job

	states      map[jq.State]int
	lost        int // jobs that were acknowledged
	worn        int // jobs that are dead because their workers were killed too often
	unstarted   int // claims that were lost before the handler began
	mostCounted int // executions of one job
	mostClaimed int // jobs that were claimed within the span of the rate
	inOrder     int // runs of jobs that began after an earlier one of their line had ended
	wentNext    int // jobs that were committed late, behind later ones of their line, and before others

	forgotten     int // jobs that the database has lost by itself
	forgottenRuns int // runs, likewise
}

// atRest is the store for who looks at what is left: without PgBouncer in between, which may just be starting anew.
func (s *storm) atRest() database {
	s.Helper()
	if !s.failsOver() {
		return s.store
	}
	direct := s.role
	direct.dsn, direct.pooled = s.server.DSN, false
	from, err := openStore(s.Context(), direct, 0)
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, from.Close()) })
	return from
}

func (s *storm) judge() *judge {
	s.Helper()
	j := &judge{storm: s, rows: map[int64]jq.JobDetail{}, effects: map[int64][]int64{}, states: map[jq.State]int{}}
	from := s.atRest()
	client := jq.NewClient(from, nil)
	for row, err := range client.Jobs(s.Context(), jq.Filter{}) {
		require.NoError(s, err)
		detail, err := client.Get(s.Context(), row.ID)
		require.NoError(s, err)
		require.Equal(s, row, detail.Job, "nothing changes any more")
		j.rows[row.ID] = detail
	}
	var kept []struct{ Job, Token int64 }
	require.NoError(s, from.DB().SelectContext(s.Context(), &kept, `SELECT job, token FROM chaos_effects`))
	for _, e := range kept {
		j.effects[e.Job] = append(j.effects[e.Job], e.Token)
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	j.checkKept()
	for _, id := range slices.Sorted(maps.Keys(j.rows)) {
		page := s.ledger.jobs[id]
		if page == nil {
			s.ledger.problem("job %d is there, and no producer was told of it", id)
			continue
		}
		row := j.rows[id]
		j.checkEnd(page, row)
		j.checkTokens(row)
		j.checkRuns(page, row)
		j.checkEffects(page, row)
	}
	j.checkKeys()
	j.checkPace()
	j.checkOrder()
	j.checkLate()
	return j
}

// checkPace: in no span of the rate were more jobs claimed than it allows, by what the rows and the history of all jobs say.
func (j *judge) checkPace() {
	var claims []time.Time
	for _, row := range j.rows {
		if row.Queue == orderedQueue {
			continue
		}
		for _, a := range row.History {
			claims = append(claims, a.StartedAt)
		}
	}
	slices.SortFunc(claims, time.Time.Compare)
	from := 0
	for to, at := range claims {
		for !claims[from].After(at.Add(-claimRate.Per)) {
			from++
		}
		j.mostClaimed = max(j.mostClaimed, to-from+1)
	}
	if j.mostClaimed > claimRate.N {
		j.ledger.problem("%d jobs were claimed within %v, and %d may be", j.mostClaimed, claimRate.Per, claimRate.N)
	}
}

// checkKept: what was acknowledged is there, and only that.
func (j *judge) checkKept() {
	told := map[int64]bool{}
	for i, call := range j.ledger.calls {
		for _, a := range call {
			_, there := j.rows[a.ID]
			switch {
			case there:
			case j.ledger.lostCall(i):
				j.forgotten++
			default:
				j.lost++
				j.ledger.problem("job %d was acknowledged, and is lost", a.ID)
			}
			if !a.Duplicate && told[a.ID] {
				j.ledger.problem("job %d was acknowledged as two jobs", a.ID)
			}
			told[a.ID] = true
		}
	}
	for id, moment := range j.ledger.late {
		if _, there := j.rows[id]; !there && moment != unknown {
			j.lost++
			j.ledger.problem("job %d was committed late, and is lost", id)
		}
		told[id] = true
	}
	for id := range j.rows {
		if !told[id] {
			j.ledger.problem("job %d was added although its producer was not told so", id)
		}
	}
}

// checkEnd: every job has ended, in a way that it could.
func (j *judge) checkEnd(p *page, row jq.JobDetail) {
	j.states[row.Phase()]++
	problem := j.ledger.problem
	switch row.Phase() {
	case jq.Succeeded:
		if p.plan.mustDie() {
			problem("job %d has succeeded, although it is %s", row.ID, p.plan.kind)
		}
		if string(row.Result) != strconv.FormatInt(row.Token, 10) {
			problem("job %d has succeeded under token %d with the result of token %s", row.ID, row.Token, row.Result)
		}
		if last := row.History[len(row.History)-1]; last.Ending != store.EndSucceeded || last.Token != row.Token {
			problem("job %d has succeeded under token %d, and its history ends with %+v", row.ID, row.Token, last)
		}
	case jq.Dead:
		if row.Retries != row.MaxRetries+1 || row.Error == "" {
			problem("job %d is dead after %d of %d retries: %q", row.ID, row.Retries, row.MaxRetries, row.Error)
		}
		if !p.plan.mustDie() {
			j.worn++
		}
	case jq.Cancelled:
		if p.plan.kind != regretted {
			problem("job %d was cancelled, and nobody wished it", row.ID)
		}
	default:
		j.lost++
		problem("job %d has not ended: it is %s", row.ID, row.Phase())
	}
	if want := strconv.Itoa(p.plan.times); p.plan.kind == snoozing && row.State == jq.Succeeded && string(row.Checkpoint) != want {
		problem("job %d was put off %s times before its effect, and its checkpoint says %s", row.ID, want, row.Checkpoint)
	}
	if p.cancelled != 0 && row.Phase() != jq.Cancelled && !j.ledger.lostAt(p.cancelled) {
		problem("job %d was cancelled, and is %s", row.ID, row.Phase())
	}
}

// checkTokens: tokens, attempts and retries are those that the history makes them, by the table of transitions.
func (j *judge) checkTokens(row jq.JobDetail) {
	var token int64
	attempts, retries := 0, 0
	for i, a := range row.History {
		if token++; !j.follows(token, a.Token) {
			j.ledger.problem("attempt %d of job %d has token %d, and should have %d: %+v", i, row.ID, a.Token, token, row.History)
			return
		}
		token = a.Token
		attempts++
		switch a.Ending {
		case store.EndExpired:
			token++
			retries++
		case store.EndFailed:
			retries++
		case store.EndReleased:
			attempts--
		case store.NotEnded:
			j.ledger.problem("attempt %d of job %d has no end", i, row.ID)
		}
		if i > 0 && a.StartedAt.Before(row.History[i-1].EndedAt) {
			j.ledger.problem("attempt %d of job %d began before the one before had ended: %+v", i, row.ID, row.History)
		}
	}
	if row.State == jq.Cancelled {
		token++
	}
	if !j.follows(token, row.Token) || row.Attempts != attempts || row.Retries != retries {
		j.ledger.problem("job %d has token %d, %d attempts and %d retries, and by its history %d, %d and %d",
			row.ID, row.Token, row.Attempts, row.Retries, token, attempts, retries)
	}
}

// follows says whether a token is the one that is due, or the first ones of a later epoch, which begins when a standby is promoted.
func (j *judge) follows(due, token int64) bool {
	return token == due || j.failsOver() && token>>32 > due>>32
}

// checkRuns: the history has what the ledger has seen, and no job was run too often.
func (j *judge) checkRuns(p *page, row jq.JobDetail) {
	runs := map[int64]run{}
	for _, r := range p.runs {
		runs[r.token] = r
	}
	counted := 0
	for _, a := range row.History {
		r, ran := runs[a.Token]
		delete(runs, a.Token)
		switch {
		case ran && r.worker != a.Worker:
			j.ledger.problem("job %d was run under token %d by %s, and by its history by %s", row.ID, a.Token, r.worker, a.Worker)
		case ran && a.Ending != store.EndReleased && a.Ending != store.EndSnoozed:
			counted++
		case !ran && a.Ending == store.EndExpired:
			j.unstarted++
		case !ran && a.Ending != store.EndReleased && a.Ending != store.EndCancelled:
			j.ledger.problem("job %d was not run under token %d, and has %s", row.ID, a.Token, a.Ending)
		}
	}
	for token, r := range runs {
		if j.ledger.lostAt(r.moment) {
			j.forgottenRuns++
			continue
		}
		j.ledger.problem("job %d was run under token %d by %s, of which its history knows nothing", row.ID, token, r.worker)
	}
	if counted > row.MaxRetries+1 {
		j.ledger.problem("job %d was run %d times, and may be retried %d times", row.ID, counted, row.MaxRetries)
	}
	j.mostCounted = max(j.mostCounted, counted)
}

// checkEffects: no effect came after a younger one, and the last one is of the run that has finished the job. Where the database has
// lost a later run, an earlier one may finish the job, whose lease is in force again.
func (j *judge) checkEffects(p *page, row jq.JobDetail) {
	kept := j.effects[row.ID]
	succeeded := row.State == jq.Succeeded
	switch {
	case p.plan.kind != within && len(kept) > 0:
		j.ledger.problem("job %d, %s, has effects in the database", row.ID, p.plan.kind)
	case p.plan.kind == within:
		if want := []int64{row.Token}; succeeded && !slices.Equal(kept, want) || !succeeded && len(kept) > 0 {
			j.ledger.problem("job %d is %s under token %d, and its effects in the database are of %v", row.ID, row.Phase(), row.Token, kept)
		}
		return
	}
	for i := 1; i < len(p.effects); i++ {
		if p.effects[i].token <= p.effects[i-1].token {
			j.ledger.problem("job %d has effects in the order %v", row.ID, p.effects)
		}
	}
	known := slices.DeleteFunc(slices.Clone(p.effects), func(e effect) bool { return j.ledger.lostAt(e.moment) && !ranUnder(row, e.token) })
	if succeeded && (len(known) == 0 || known[len(known)-1].token != row.Token) {
		j.ledger.problem("job %d has succeeded under token %d, and its effects are %v", row.ID, row.Token, p.effects)
	}
}

// ranUnder says whether the job's history has an attempt with the token.
func ranUnder(row jq.JobDetail, token int64) bool {
	return slices.ContainsFunc(row.History, func(a jq.Attempt) bool { return a.Token == token })
}

// checkKeys: of the jobs with one key, each had done its work before the next one was run.
func (j *judge) checkKeys() {
	latest := map[string]int64{}
	for _, id := range slices.Sorted(maps.Keys(j.rows)) {
		page := j.ledger.jobs[id]
		if page == nil || page.plan.key == "" {
			continue
		}
		before := latest[page.plan.key]
		latest[page.plan.key] = id
		if before == 0 || len(page.runs) == 0 || j.rows[before].State != jq.Succeeded {
			continue
		}
		done := j.ledger.jobs[before].effects
		if len(done) > 0 && done[len(done)-1].moment > page.runs[0].moment {
			j.ledger.problem("job %d was run before job %d with the same key was done", id, before)
		}
	}
}
