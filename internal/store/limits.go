package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of the contract.
const (
	Resolution       = time.Microsecond
	MaxItems         = 1000               // per call
	MaxFirings       = 100                // per call of Fire
	MaxCallBytes     = 8 << 20            // per call
	MaxAnswerBytes   = 8 << 20            // documents of a page, and of each lane of a claim
	MaxPageNames     = 1 << 20            // queue names of the workers of a page; any single worker fits
	MaxPageTemplates = 1 << 20            // payloads of the schedules of a page
	MaxTemplateBytes = 64 << 10           // payload of the job of a schedule
	MaxNameBytes     = 255                // queue, kind, key, tag, worker, trace, host
	MaxDocBytes      = 1 << 20            // payload, result, checkpoint, progress
	MaxJobBytes      = 4 * MaxDocBytes    // all documents of a job
	MaxErrorBytes    = 16 << 10           // an error text
	MaxTags          = 16                 // per job
	MaxWaits         = 64                 // per job
	MaxCallWaits     = 4000               // per call
	MaxOpen          = 100                // groups that a call opens
	SettledByCall    = 1000               // jobs that a call changes beside those that it is about, see Settle
	MaxPatterns      = 100                // queue patterns in a filter
	MinPriority      = -9                 //
	MaxPriority      = 9                  //
	MaxRetryLimit    = 1_000_000          // MaxRetries
	MaxDuration      = 87_600 * time.Hour // ten years
)

// MaxTime is the first time that is too late.
var MaxTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Truncate converts a time to UTC and truncates it to the resolution of the contract. The zero time stays the zero time.
func Truncate(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(Resolution)
}

const cutMark = " … (cut)"

// CleanError makes an error text fit to be kept: valid UTF-8 without NUL and, if it is too long, cut to MaxErrorBytes with a
// mark at its end.
func CleanError(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= MaxErrorBytes {
		return text
	}
	end := MaxErrorBytes - len(cutMark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutMark
}

// Check returns an [*InvalidError] if the request breaks a limit.
func (r EnqueueRequest) Check() error {
	if err := checkItems("jobs", len(r.Jobs)); err != nil {
		return err
	}
	if err := checkName("request_key", r.RequestKey, optional); err != nil {
		return err
	}
	size := 0 // without the request key, so that a store that adds its own key rejects nothing that others accept
	for _, n := range r.Jobs {
		size += n.size()
	}
	if err := checkSize(size); err != nil { // before the documents are read, which takes longer
		return err
	}
	waits := 0
	for i, n := range r.Jobs {
		err := n.check()
		if waits += len(n.After); err == nil {
			err = firstError(n.checkWaits(i), checkRange("after", waits, 0, MaxCallWaits))
		}
		if err != nil {
			err.Item = i
			return err
		}
	}
	return asError(firstError(r.checkOpen(), checkCircles(r.Jobs)))
}

func (r EnqueueRequest) checkOpen() *InvalidError {
	switch {
	case len(r.Open) > MaxOpen:
		return refuse("open", fmt.Sprintf("must be at most %d groups a call", MaxOpen))
	case len(r.Open) > 0 && len(r.Jobs) == 0:
		return refuse("open", "needs a job in the same call")
	}
	for _, name := range r.Open {
		if err := checkName("open", name, required); err != nil {
			return err
		}
	}
	return nil
}

// checkWaits checks the waits of the item.
func (n NewJob) checkWaits(item int) *InvalidError {
	if err := checkRange("after", len(n.After), 0, MaxWaits); err != nil {
		return err
	}
	for _, w := range n.After {
		switch {
		case w.Group != "" && (w.ID != 0 || w.Item != 0):
			return refuse("after", "must name either a job or a group")
		case w.Group != "":
			if err := checkName("after", w.Group, required); err != nil {
				return err
			}
		case w.ID < 0:
			return refuse("after", "must have ids of jobs")
		case w.ID != 0 && w.Item != 0:
			return refuse("after", "must name a job either by its id or by its item")
		case w.ID == 0 && (w.Item < 0 || w.Item >= item):
			return refuse("after", "must name an earlier item of the call")
		}
	}
	return nil
}

// NoSuchWait returns the error for an item that waits for a job which does not exist.
func NoSuchWait(item int, id int64) error {
	refused := refuse("after", fmt.Sprintf("names job %d, which does not exist", id))
	refused.Item = item
	return refused
}

// CheckNew returns an [*InvalidError] with the first job that cannot be added at now, or nil: its ExpiresAt is not later than its due
// time, it waits for a job that does not exist, or it has a priority and a limit key in one of the queues whose policies are Ordered. A store must
// not check this for a repeat under a request key.
func CheckNew(jobs []NewJob, now time.Time, exists func(id int64) bool, ordered []string) error {
	late := CheckExpiry(jobs, now)
	for i, n := range jobs {
		if refused, ok := late.(*InvalidError); ok && refused.Item == i { //nolint:errorlint // it has just been made
			return late
		}
		if n.prioritized() && slices.Contains(ordered, n.Queue) {
			refused := refuse("priority", "must be 0 for a job with a limit key: its queue is ordered")
			refused.Item = i
			return refused
		}
		for _, w := range n.After {
			if w.ID != 0 && !exists(w.ID) {
				return NoSuchWait(i, w.ID)
			}
		}
	}
	return nil
}

// Prioritized returns the queues of jobs with a limit key and a priority: CheckNew must know which of their policies are Ordered.
func Prioritized(jobs []NewJob) (queues []string) {
	for _, n := range jobs {
		if n.prioritized() && !slices.Contains(queues, n.Queue) {
			queues = append(queues, n.Queue)
		}
	}
	return queues
}

func (n NewJob) prioritized() bool { return n.Priority != 0 && n.LimitKey != "" && n.Scheduled == nil }

// RefuseWaits returns an [*InvalidError] if a job waits for others, or is in a group, for a store that does not keep waits.
func RefuseWaits(req EnqueueRequest) error {
	for i, n := range req.Jobs {
		if len(n.After) > 0 {
			refused := refuse("after", "must be empty: this store can not let jobs wait for others")
			refused.Item = i
			return refused
		}
	}
	return RefuseGroups(req)
}

// RefuseGroups returns an [*InvalidError] if a request has to do with groups, for a store that does not keep them.
func RefuseGroups(req EnqueueRequest) error {
	const rule = "must be empty: this store keeps no groups"
	if len(req.Open) > 0 {
		return refuse("open", rule)
	}
	for i, n := range req.Jobs {
		var refused *InvalidError
		if n.Group != "" {
			refused = refuse("group", rule)
		}
		if slices.ContainsFunc(n.After, func(w Wait) bool { return w.Group != "" }) {
			refused = refuse("after", "must name no group: this store keeps none")
		}
		if refused != nil {
			refused.Item = i
			return refused
		}
	}
	return nil
}

// RefuseKeyLimits returns an [*InvalidError] if a policy limits the jobs of each limit key, lets the keys take turns, or keeps their jobs in order, for a store that
// keeps limit keys only for people and filters.
func RefuseKeyLimits(p Policy) error {
	switch {
	case p.MaxPerKey != 0:
		return refuse("max_per_key", "must not be set: this store does not limit jobs by their keys")
	case p.Fair:
		return refuse("fair", "must not be set: this store does not let limit keys take turns")
	case p.Ordered:
		return refuse("ordered", "must not be set: this store does not keep the jobs of a limit key in order")
	}
	return nil
}

func (n NewJob) check() *InvalidError {
	err := firstError(
		checkName("queue", n.Queue, required),
		checkName("kind", n.Kind, required),
		checkDoc("payload", n.Payload, required),
		checkRange("priority", n.Priority, MinPriority, MaxPriority),
		checkRange("tags", len(n.Tags), 0, MaxTags),
		checkName("trace", n.Trace, optional),
		checkDuration("delay", n.Delay),
		checkRange("max_retries", n.MaxRetries, 0, MaxRetryLimit),
		checkDuration("backoff.base", n.Backoff.Base),
		checkDuration("backoff.cap", n.Backoff.Cap),
		checkRange("backoff.jitter", n.Backoff.Jitter, 0, 100),
		checkDuration("timeout", n.Timeout),
		checkName("unique_key", n.UniqueKey, optional),
		checkDuration("unique_for", n.UniqueFor),
		checkName("group", n.Group, optional),
		checkName("limit_key", n.LimitKey, optional),
	)
	if err != nil {
		return err
	}
	for _, tag := range n.Tags {
		if err := checkName("tags", tag, required); err != nil {
			return err
		}
	}
	switch {
	case n.Backoff.Cap < n.Backoff.Base:
		return refuse("backoff.cap", "must be no less than the base")
	case n.UniqueFor > 0 && n.UniqueKey == "":
		return refuse("unique_for", "needs a unique key")
	case n.Replace && n.UniqueKey == "":
		return refuse("replace", "needs a unique key")
	case 0 < n.UniqueFor && n.UniqueFor < Resolution:
		return refuse("unique_for", "must be a microsecond at least, or zero for as long as the job is live")
	case n.Scheduled != nil:
		return refuse("scheduled", "must not be set: only schedules set it")
	case !n.RunAt.IsZero() && n.Delay != 0:
		return refuse("delay", "and run_at exclude each other")
	}
	return firstError(checkTime("run_at", n.RunAt), checkTime("expires_at", n.ExpiresAt))
}

// CheckSettle returns an [*InvalidError] if the limit of a Settle breaks a limit.
func CheckSettle(limit int) error { return asError(checkRange("limit", limit, 1, MaxItems)) }

// CheckExpiry returns an [*InvalidError] if a job's ExpiresAt is not later than the time at which it becomes due if it is
// enqueued at now. A store must not check it for a repeat under a request key: the time may have come since.
func CheckExpiry(jobs []NewJob, now time.Time) error {
	for i := range jobs {
		if jobs[i].ExpiresAt.IsZero() {
			continue
		}
		if row := jobs[i].Row(0, now); !row.ExpiresAt().After(row.RunAt) {
			refused := refuse("expires_at", "must be later than the time at which the job becomes due")
			refused.Item = i
			return refused
		}
	}
	return nil
}

// FitOneCall returns how many of the jobs, from the first on, an Enqueue takes, with room for what middleware adds, such as traces. It returns
// at least one, which may be too large by itself. A repeat by another version must cut a flow at the same places.
func FitOneCall(jobs []NewJob) int {
	size, waits := 0, 0
	for i, n := range jobs {
		size, waits = size+n.size(), waits+len(n.After)
		if i > 0 && (i == MaxItems || size > MaxCallBytes/2 || waits > MaxCallWaits) {
			return i
		}
	}
	return len(jobs)
}

func (n NewJob) size() int {
	size := len(n.Queue) + len(n.Kind) + len(n.Payload) + len(n.Trace) + len(n.UniqueKey) + len(n.Group) + len(n.LimitKey)
	for _, tag := range n.Tags {
		size += len(tag)
	}
	return size
}

// Check returns an [*InvalidError] if the request breaks a limit.
func (r ClaimRequest) Check() error {
	return asError(firstError(
		checkName("queue", r.Queue, required),
		checkName("worker", r.Worker, required),
		checkRange("limit", r.Limit, 1, MaxItems),
		checkRange("retry_quota", r.RetryQuota, 0, r.Limit),
		checkTTL(r.TTL),
	))
}

// CheckExtend returns an [*InvalidError] if a call of Extend breaks a limit.
func CheckExtend(leases []Lease, ttl time.Duration) error {
	if err := checkItems("leases", len(leases)); err != nil {
		return err
	}
	return asError(checkTTL(ttl))
}

// CheckAcks returns an [*InvalidError] if a call of Ack as a whole breaks a limit. A result longer than MaxDocBytes does not
// count toward the size of the call.
func CheckAcks(acks []Ack) error {
	if err := checkItems("acks", len(acks)); err != nil {
		return err
	}
	size := 0
	for _, a := range acks {
		if len(a.Result) <= MaxDocBytes {
			size += len(a.Result)
		}
	}
	return checkSize(size)
}

// Refused returns why the result cannot be kept, or nil if it can. An Ack whose result is refused fails its job for good.
func (a Ack) Refused() *Failure {
	if err := checkDoc("result", a.Result, optional); err != nil {
		return &Failure{Reason: fmt.Sprintf("result refused: it %s", err.Rule), Never: true}
	}
	return nil
}

// CheckNAcks returns an [*InvalidError] if a call of NAck as a whole breaks a limit.
func CheckNAcks(nacks []NAck) error {
	if err := checkItems("nacks", len(nacks)); err != nil {
		return err
	}
	size := 0
	for _, n := range nacks {
		size += len(CleanError(n.Error)) // as it is kept, so that its size is the same however often it is forwarded
	}
	return checkSize(size)
}

// Check returns an [*InvalidError] if the item breaks a limit.
func (n NAck) Check() error {
	switch n.Form {
	case Fail, Never, After, Snooze, Release:
	default:
		return refuse("form", "must be fail, never, after, snooze or release")
	}
	if n.Delay != 0 && n.Form != After && n.Form != Snooze {
		return refuse("delay", "goes with after and snooze only")
	}
	return asError(checkDuration("delay", n.Delay))
}

// CheckSaves returns an [*InvalidError] if a call of Save as a whole breaks a limit.
func CheckSaves(saves []Save) error {
	if err := checkItems("saves", len(saves)); err != nil {
		return err
	}
	size := 0
	for _, s := range saves {
		for _, doc := range [][]byte{s.Checkpoint, s.Progress} {
			if len(doc) <= MaxDocBytes {
				size += len(doc)
			}
		}
	}
	return checkSize(size)
}

// Check returns an [*InvalidError] if the item breaks a limit.
func (s Save) Check() error {
	return asError(firstError(checkNumber("seq", s.Seq), checkDoc("checkpoint", s.Checkpoint, optional), checkDoc("progress", s.Progress, optional)))
}

// Check returns an [*InvalidError] if the request breaks a limit.
func (r RecoverRequest) Check() error {
	return asError(firstError(checkRange("limit", r.Limit, 1, MaxItems), checkDuration("grace", r.Grace)))
}

// Check returns an [*InvalidError] if the filter breaks a limit.
func (f Filter) Check() error {
	err := firstError(
		checkRange("ids", len(f.IDs), 0, MaxItems),
		checkName("queue", f.Queue, optional),
		checkRange("queues", len(f.Queues), 0, MaxPatterns),
		checkName("kind", f.Kind, optional),
		checkName("tag", f.Tag, optional),
		checkName("worker", f.Worker, optional),
		checkName("unique_key", f.UniqueKey, optional),
		checkName("group", f.Group, optional),
		checkName("limit_key", f.LimitKey, optional),
		checkRange("states", len(f.States), 0, MaxItems),
		checkDuration("finished_for", f.FinishedFor),
		checkNumber("waits_for", f.WaitsFor),
		checkName("waits_for_group", f.WaitsForGroup, optional),
	)
	if err != nil {
		return err
	}
	for _, p := range f.Queues {
		if err := checkName("queues", strings.TrimSuffix(p, "*"), optional); p == "" || err != nil {
			return refuse("queues", fmt.Sprintf("must be names of 1 to %d bytes without NUL, in valid UTF-8, or beginnings of names with a * behind them", MaxNameBytes))
		}
	}
	for _, s := range f.States {
		switch s {
		case Blocked, Ready, InFlight, Succeeded, Failed, Retrying, Dead, Cancelled:
		default:
			return refuse("states", "must be blocked, ready, in_flight, succeeded, failed, retrying, dead or cancelled")
		}
	}
	return nil
}

// CheckBulk returns an [*InvalidError] if a call of Cancel, Requeue or Delete breaks a limit. Reschedule has
// [Filter.CheckReschedule].
func (f Filter) CheckBulk(limit int) error {
	if f.Empty() {
		return refuse("filter", "must not be empty: it would mean every job")
	}
	if err := checkRange("limit", limit, 1, MaxItems); err != nil {
		return err
	}
	return f.Check()
}

// CheckReschedule returns an [*InvalidError] if a call of Reschedule breaks a limit.
func (f Filter) CheckReschedule(at time.Time, limit int) error {
	if err := f.CheckBulk(limit); err != nil {
		return err
	}
	return asError(checkTime("run_at", at))
}

// Check returns an [*InvalidError] if the page breaks a limit. Filter.Position and WorkerFilter.Position check the cursor.
func (p Page) Check() error { return asError(checkRange("limit", p.Limit, 1, MaxItems)) }

// KeyUsed returns the error for a request whose key was used for other jobs.
func (r EnqueueRequest) KeyUsed() error {
	return refuse("request_key", "was used for other jobs within a day")
}

// Check returns an [*InvalidError] if the worker breaks a limit.
func (w Worker) Check() error {
	err := firstError(
		checkName("worker", w.Name, required),
		checkName("host", w.Host, optional),
		checkRange("queues", len(w.Queues), 0, MaxItems),
		checkDuration("stale_after", w.StaleAfter),
	)
	if err != nil {
		return err
	}
	for _, q := range w.Queues {
		if err := checkName("queues", q, required); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an [*InvalidError] if the filter breaks a limit.
func (f WorkerFilter) Check() error { return asError(checkName("name", f.Name, optional)) }

// Check returns an [*InvalidError] if the schedule breaks a limit.
func (s Schedule) Check() error {
	err := firstError(
		checkName("name", s.Name, required),
		checkName("cron", s.Cron, required),
		checkName("timezone", s.Timezone, optional),
		checkName("owner", s.Owner, optional),
	)
	if err != nil {
		return err
	}
	if err := s.Job.check(); err != nil {
		err.Field = "job." + err.Field
		return err
	}
	switch {
	case !s.Job.RunAt.IsZero():
		return refuse("job.run_at", "must not be set: the schedule decides when its jobs run")
	case !s.Job.ExpiresAt.IsZero():
		return refuse("job.expires_at", "must not be set: the schedule enqueues its job again and again")
	case len(s.Job.After) > 0:
		return refuse("job.after", "must not be set: a schedule's job waits for no other")
	case s.Job.Group != "":
		return refuse("job.group", "must not be set: a group is one run, and a schedule runs again and again")
	case s.Job.Replace:
		return refuse("job.replace", "must not be set: a schedule's job does not change the job that holds its unique key")
	case len(s.Job.Payload) > MaxTemplateBytes:
		return refuse("job.payload", fmt.Sprintf("must have at most %d bytes in a schedule", MaxTemplateBytes))
	case s.CatchUp != "" && s.CatchUp != CatchUpOne && s.CatchUp != CatchUpSkip:
		return refuse("catch_up", "must be one or skip")
	case s.Overlap != "" && s.Overlap != OverlapAllow && s.Overlap != OverlapSkip:
		return refuse("overlap", "must be allow or skip")
	case s.Version < 0:
		return refuse("version", "must not be negative")
	case s.Revision < 0:
		return refuse("revision", "must be that of the schedule to replace, or 0 where there is none")
	case s.Paused && !s.NextAt.IsZero():
		return refuse("next_at", "must not be set for a schedule that is paused")
	}
	return asError(checkTime("next_at", s.NextAt))
}

// Check returns an [*InvalidError] if the filter breaks a limit.
func (f ScheduleFilter) Check() error {
	if f.Within != 0 && !f.Due {
		return refuse("within", "goes with due only")
	}
	return asError(firstError(checkName("name", f.Name, optional), checkDuration("within", f.Within)))
}

// CheckSchedule returns an [*InvalidError] if the name of a schedule breaks a limit.
func CheckSchedule(name string) error { return asError(checkName("name", name, required)) }

// CheckFirings returns an [*InvalidError] if a call of Fire breaks a limit.
func CheckFirings(firings []Firing) error {
	if len(firings) > MaxFirings {
		return refuse("firings", fmt.Sprintf("must be at most %d a call", MaxFirings))
	}
	for i, f := range firings {
		if err := firstError(checkName("name", f.Name, required), checkTime("for", f.For), checkTime("next", f.Next)); err != nil {
			err.Item = i
			return err
		}
	}
	return nil
}

// CheckQueue returns an [*InvalidError] if the name of a queue breaks a limit.
func CheckQueue(name string) error { return asError(checkName("queue", name, required)) }

const (
	required = true
	optional = false
)

func refuse(field, rule string) *InvalidError {
	return &InvalidError{Item: -1, Field: field, Rule: rule}
}

func firstError(errs ...*InvalidError) *InvalidError {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// asError keeps a nil *InvalidError from becoming an error that is not nil.
func asError(err *InvalidError) error {
	if err == nil {
		return nil
	}
	return err
}

func checkName(field, name string, must bool) *InvalidError {
	switch {
	case name == "" && must:
		return refuse(field, "must not be empty")
	case len(name) > MaxNameBytes:
		return refuse(field, fmt.Sprintf("must have at most %d bytes", MaxNameBytes))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return refuse(field, "must be valid UTF-8 without NUL")
	}
	return nil
}

func checkDoc(field string, doc []byte, must bool) *InvalidError {
	switch {
	case len(doc) == 0 && !must:
		return nil
	case len(doc) > MaxDocBytes:
		return refuse(field, fmt.Sprintf("must have at most %d bytes", MaxDocBytes))
	case !utf8.Valid(doc) || !json.Valid(doc):
		return refuse(field, "must be a JSON document in valid UTF-8")
	}
	return nil
}

func checkRange(field string, n, low, high int) *InvalidError {
	if n < low || n > high {
		return refuse(field, fmt.Sprintf("must be %d to %d", low, high))
	}
	return nil
}

func checkNumber(field string, n int64) *InvalidError {
	if n < 0 {
		return refuse(field, "must not be negative")
	}
	return nil
}

func checkDuration(field string, d time.Duration) *InvalidError {
	if d < 0 || d > MaxDuration {
		return refuse(field, fmt.Sprintf("must be 0 to %v", MaxDuration))
	}
	return nil
}

func checkTime(field string, t time.Time) *InvalidError {
	if t.UTC().Year() < 1 || !t.Before(MaxTime) {
		return refuse(field, "must lie in the years 1 to 9999")
	}
	return nil
}

func checkTTL(ttl time.Duration) *InvalidError {
	if ttl < Resolution || ttl > MaxDuration {
		return refuse("ttl", fmt.Sprintf("must be %v to %v", Resolution, MaxDuration))
	}
	return nil
}

func checkItems(field string, n int) error {
	if n > MaxItems {
		return refuse(field, fmt.Sprintf("must be at most %d a call", MaxItems))
	}
	return nil
}

func checkSize(size int) error {
	if size > MaxCallBytes {
		return refuse("call", fmt.Sprintf("must have at most %d bytes in all", MaxCallBytes))
	}
	return nil
}
