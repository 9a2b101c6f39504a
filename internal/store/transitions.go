package store

// An Op is an operation on a job.
type Op string

// The operations. Fail, Never, After, Snooze and Release are the forms of NAck. Unblock is what follows from the end of another job.
const (
	OpClaim      Op = "claim"
	OpExtend     Op = "extend"
	OpSave       Op = "save"
	OpAck        Op = "ack"
	OpFail       Op = "fail"
	OpNever      Op = "never"
	OpAfter      Op = "after"
	OpSnooze     Op = "snooze"
	OpRelease    Op = "release"
	OpRecover    Op = "recover"
	OpCancel     Op = "cancel"
	OpRequeue    Op = "requeue"
	OpReschedule Op = "reschedule"
	OpDelete     Op = "delete"
	OpUnblock    Op = "unblock"
)

// A Change says what a transition does to a counter.
type Change string

// The changes of counters.
const (
	Same  Change = "="
	Plus  Change = "+1"
	Minus Change = "−1"
	Reset Change = "0"
)

// Gone is the state after Delete: the job no longer exists.
const Gone State = "gone"

// A Transition is one row of the table of legal transitions.
type Transition struct {
	Op       Op
	From     []State // phases
	Guard    string  // condition besides the phase
	To       []State // phases: the job gets one of them
	Token    Change
	Attempts Change
	Retries  Change
	Also     string // what else changes
}

// Transitions is the table of legal transitions: an operation does not change a job in any phase other than those of its row.
// Enqueue, which makes a job ready or blocked or replaces one that waits, and Fence, which raises tokens of jobs in flight if it ends leases, have no row. A token
// grows by one, or to the first token of the epoch that Fence has set if that is greater. The documentation, the reference
// model and the suite's matrix of operations and states are made from it.
var Transitions = []Transition{
	{OpClaim, []State{Ready, Retrying}, "due, not expired, its queue not paused", []State{InFlight}, Plus, Plus, Same, "lease = now + TTL, worker set, RetryAt cleared, Seq of checkpoint and progress = 0"},
	{OpExtend, []State{InFlight}, "token", []State{InFlight}, Same, Same, Same, "lease = now + TTL"},
	{OpSave, []State{InFlight}, "token", []State{InFlight}, Same, Same, Same, "checkpoint and progress stored, unless written before with a greater Seq"},
	{OpAck, []State{InFlight}, "token", []State{Succeeded}, Same, Same, Same, "lease and error cleared, result kept; if the result is refused: as never, but finished by ack"},
	{OpFail, []State{InFlight}, "token", []State{Retrying, Dead}, Same, Same, Plus, "lease cleared, error kept, RetryAt = now + backoff while retries are left"},
	{OpNever, []State{InFlight}, "token", []State{Dead}, Same, Same, Plus, "lease cleared, error kept"},
	{OpAfter, []State{InFlight}, "token", []State{Retrying, Dead}, Same, Same, Plus, "lease cleared, error kept, RetryAt = now + delay while retries are left"},
	{OpSnooze, []State{InFlight}, "token", []State{Ready}, Same, Same, Same, "lease cleared, RunAt = now + delay"},
	{OpRelease, []State{InFlight}, "token", []State{Ready}, Same, Minus, Same, "lease cleared, RunAt = now"},
	{OpRecover, []State{InFlight}, "lease ≤ now − grace", []State{Retrying, Dead}, Plus, Same, Plus, "as fail, with the reason lease expired"},
	{OpUnblock, []State{Blocked}, "its last wait is met", []State{Ready}, Same, Same, Same, "RunAt = the later of now and the time asked for"},
	{OpCancel, []State{Blocked, Ready, Retrying, InFlight}, "", []State{Cancelled}, Plus, Same, Same, "lease and RetryAt cleared; repeated: ok, nothing changes"},
	{OpRequeue, []State{Succeeded, Dead, Cancelled}, "its unique key is free", []State{Ready, Blocked}, Plus, Same, Reset, "RunAt = now, error, result and ExpiresAt cleared; checkpoint and progress cleared if the job had succeeded"},
	{OpReschedule, []State{Ready, Retrying}, "", []State{Ready, Retrying}, Plus, Same, Same, "RunAt, or RetryAt if retrying = the later of now and the time asked for; already due then: ok, nothing changes"},
	{OpDelete, []State{Succeeded, Dead, Cancelled}, "", []State{Gone}, Same, Same, Same, "history deleted too; the id is never used again"},
}
