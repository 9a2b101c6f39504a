package store

// An Op is something that can happen to a job.
type Op string

// The operations. Fail, Never, After, Snooze and Release are the forms of NAck.
const (
	OpClaim   Op = "claim"
	OpExtend  Op = "extend"
	OpSave    Op = "save"
	OpAck     Op = "ack"
	OpFail    Op = "fail"
	OpNever   Op = "never"
	OpAfter   Op = "after"
	OpSnooze  Op = "snooze"
	OpRelease Op = "release"
	OpRecover Op = "recover"
	OpCancel  Op = "cancel"
	OpRequeue Op = "requeue"
	OpDelete  Op = "delete"
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

// Gone is where Delete leads: the job is no more.
const Gone State = "gone"

// A Transition is one row of the table of legal transitions.
type Transition struct {
	Op       Op
	From     []State // phases
	Guard    string  // what must hold besides the phase
	To       []State // phases, one of them
	Token    Change
	Attempts Change
	Retries  Change
	Also     string // what else changes
}

// Transitions is the table of legal transitions: every operation leaves a job in any other phase as it is. Enqueue, which
// makes a job ready, and Fence, which raises tokens of jobs in flight where it ends leases, have no row. A token grows by one, or
// to the floor of the epoch that Fence has set. The
// documentation, the reference model and the suite's matrix of operations and states are made from it.
var Transitions = []Transition{
	{OpClaim, []State{Ready, Retrying}, "due, its queue not paused", []State{InFlight}, Plus, Plus, Same, "lease = now + TTL, worker set, RetryAt cleared, numbers of saves back to 0"},
	{OpExtend, []State{InFlight}, "token", []State{InFlight}, Same, Same, Same, "lease = now + TTL"},
	{OpSave, []State{InFlight}, "token", []State{InFlight}, Same, Same, Same, "checkpoint and progress kept, unless a later number is"},
	{OpAck, []State{InFlight}, "token", []State{Succeeded}, Same, Same, Same, "lease and error cleared, result kept; a result that is refused: as never, but finished by ack"},
	{OpFail, []State{InFlight}, "token", []State{Retrying, Dead}, Same, Same, Plus, "lease cleared, error kept, RetryAt = now + backoff while retries are left"},
	{OpNever, []State{InFlight}, "token", []State{Dead}, Same, Same, Plus, "lease cleared, error kept"},
	{OpAfter, []State{InFlight}, "token", []State{Retrying, Dead}, Same, Same, Plus, "lease cleared, error kept, RetryAt = now + delay while retries are left"},
	{OpSnooze, []State{InFlight}, "token", []State{Ready}, Same, Same, Same, "lease cleared, RunAt = now + delay"},
	{OpRelease, []State{InFlight}, "token", []State{Ready}, Same, Minus, Same, "lease cleared, RunAt = now"},
	{OpRecover, []State{InFlight}, "lease ≤ now − grace", []State{Retrying, Dead}, Plus, Same, Plus, "as fail, with the reason lease expired"},
	{OpCancel, []State{Ready, Retrying, InFlight}, "", []State{Cancelled}, Plus, Same, Same, "lease and RetryAt cleared; repeated: ok, nothing changes"},
	{OpRequeue, []State{Succeeded, Dead, Cancelled}, "its unique key is free", []State{Ready}, Plus, Same, Reset, "RunAt = now, error and result cleared; checkpoint and progress cleared if it had succeeded"},
	{OpDelete, []State{Succeeded, Dead, Cancelled}, "", []State{Gone}, Same, Same, Same, "history gone too; the id is never used again"},
}
