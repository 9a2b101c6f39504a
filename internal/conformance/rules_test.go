package conformance_test

// rules are those that the suite can prove, in a few words each. The numbers are the ones that cases name.
var rules = map[int]string{
	1:  "Enqueue is atomic and committed before it returns; jobs survive a restart; an invalid item is named by its index",
	2:  "a unique key admits one live job, or one per window that slides from the enqueue; a duplicate spoils nothing",
	3:  "limits on every field and call; documents are kept byte for byte; errors are mended and cut; a refused result fails the job for good",
	4:  "a claim does what the table says, atomically, and returns the row as stored",
	5:  "no job is handed out twice with one token",
	6:  "a claim takes only from its queue, and nothing from a paused one",
	7:  "claimable exactly as in the table, to the microsecond",
	8:  "within a lane: higher priority, then earlier due time, then enqueue order",
	9:  "two lanes: retries up to the quota, fresh jobs for the rest, each fills what the other leaves",
	11: "recovery touches only expired leases, at most its limit, the oldest expiry first",
	12: "recovery changes exactly what the table says",
	13: "past MaxRetries a job is dead",
	14: "recovery leaves attempts as they are",
	15: "what is committed and claimable is found by some claim within a fixed bound",
	16: "recovery is idempotent, and the counts of recoverers at the same time sum exactly",
	17: "a job whose worker crashed is recovered, claimable after its backoff, and finished by another worker",
	20: "a stale Ack is refused, the row unchanged",
	21: "so is a stale NAck, Snooze, Release, Extend and Save",
	22: "a lease is stale from recovery, cancel and requeue on, before any new claim",
	23: "the same worker's name does not help an older token",
	24: "an Ack after expiry and before recovery is accepted, and recovery then finds nothing",
	25: "a late Extend never revives a job that is not in flight",
	26: "not_found is not stale",
	27: "the same way of finishing again is ok and changes nothing, another way is stale",
	28: "one bad item spoils no other; a job that stands twice in a call is handled in order",
	29: "NAck and expiry share one policy and count from the stored row",
	30: "backoff is exponential up to a cap, exact, and never overflows",
	31: "a handler can say never, after exactly d, or snooze",
	32: "beats hold a long job; when they stop it is recovered once",
	43: "release and snooze do what the table says",
	44: "every attempt can be read back with worker, times, ending and error; the latest 100 are kept",
	45: "the worker's name blocks nothing",
	46: "every operation in every state does what the table says",
	47: "dead jobs can be listed, counted and requeued, one or by filter, item by item",
	50: "the list of workers shows stale ones and affects nothing",
	56: "the suite runs on any adapter, and broken stores fail it",
	57: "random sequences agree with a reference model; a failure shrinks and replays",
	58: "delayed jobs stay hidden until due",
	59: "a pause stops claims; recovery and finishing go on",
	60: "cancel does what the table says, and fences what runs",
	61: "terminal jobs can be deleted by state and age, in bounded batches; a policy of their queue, changed by its version, says when",
	62: "workers, servers and the database are killed at random, and every job ends as it may",
	64: "checkpoints survive whatever ended the attempt",
	66: "enqueue and strict finish inside the caller's own transaction",
	67: "concurrent histories are linearizable per job and per unique key",
	69: "a repeated Enqueue with the same request key returns the first answer for 24 hours",
	70: "ids are never used again; after Fence, ids and tokens go on above a new floor",
	71: "errors say what is known, and each method says how to repeat",
	72: "a context ends its own call's waiting, never a neighbour's call",
	73: "look-ups, repeats and uniqueness see live and finished jobs as one",
	74: "pages skip and repeat nothing that was there before the first",
}

// provedElsewhere are rules whose proof is not a case but a test of the whole suite.
var provedElsewhere = map[int]string{
	56: "the mutants: `go test ./internal/conformance -run Mutants`",
	57: "random sequences: `jqtest.Run`, part Random",
	62: "chaos: `go test ./internal/chaos`; the same in a simulated world: `go test ./internal/server -run Simulation`",
	67: "concurrent histories: `jqtest.Run`, part Linear",
}

// unproved are the sentences of the contract that have no case, each with the reason.
var unproved = map[string]string{
	"Package store is the contract between jq and the place where its jobs are kept.":                                                                                                     saysWhat,
	"A store keeps jobs durably, hands each of them to one worker at a time under a lease, and refuses what a worker writes after its lease was ended.":                                   "the sum of what follows",
	"[Store] is what every adapter implements; the small interfaces [Transactor], [Notifier], [QueueKeeper], [PolicyKeeper], [Registry], [Fencer] and [Monitor] are abilities beyond it.": "the compiler checks it",
	"Each sentence above a method is a promise to the caller and a duty of the adapter, and a case of the conformance suite quotes it.":                                                   "TestSentencesHaveCases checks it",
	"[Transitions] is the same picture as data.":                             "the cases of the matrix are made from it",
	"The holder ends it by Ack, by NAck in one of its forms, or not at all.": "there is no other call",
	"The checks are methods of the requests, so that all adapters refuse the same things in the same words: [EnqueueRequest.Check], [ClaimRequest.Check] and their siblings.": "says how; what is refused has its cases",
	"A Store keeps jobs.": saysWhat,
	"What follows holds for every method, those of the abilities included.": saysWhat,
	"A full disk, a lost connection and a database that is away are ErrUnavailable where it is known that nothing was committed, and ErrInDoubt where the answer to the commit was lost.":                                         "needs faults of the store's own backend: the adapters' own tests make them",
	"What happens behind the store's back hides nothing for good: a database that was restored or failed over and has lost its latest changes, a clock that was set back for a moment, rows that were changed by hand.":           behindItsBack,
	"A job that is claimable after it, or a lease that has expired, is found within 30 seconds by stores that go on claiming and recovering, or within one round of the store's own look at all that waits if that takes longer.": behindItsBack,
	"FetchAndClaim takes due jobs of one queue, gives each a lease for the worker, and returns them as they are stored.":                                                                                                          "the sum of what follows",
	"ErrDenied: the caller may not do this, and nothing was applied; a repeat is no use until somebody has given the right.":                                                                                                      "needs a store that knows its callers: the adapters' own tests ask with a wrong role and without a right",
	"Close lets go of what the store holds.":                                                                         "memory and files are not seen from outside: the adapters' own tests look",
	"A Tx is a caller's transaction, as *sql.Tx and *sqlx.Tx are.":                                                   "the compiler checks it",
	"A Notifier tells when to look for jobs, so that nobody need look often.":                                        saysWhat,
	"A QueueKeeper knows the queues and can pause them.":                                                             saysWhat,
	"A PolicyKeeper keeps a policy for each queue, so that all programs that use the store go by the same settings.": saysWhat,
	"A Monitor answers what probes and metrics ask every few seconds.":                                               saysWhat,
	"What that costs grows with the queues, and not with their jobs.":                                                "a cost is not seen from outside: the adapters' own tests ask a million jobs",
	"A List or a Count that lasts for longer than the store lets it is an OverlongError, which is ErrUnavailable.":   "needs a reading that lasts: the adapters' own tests hold one up",
	"A Registry lists workers.": saysWhat,
	"A Fencer makes a store safe to use after it was restored from a backup, or failed over with a loss of data.":        saysWhat,
	"That is for a copy with which workers have gone on before it was fenced, and needs them stopped.":                   saysWhat,
	"Ping asks a store whether it answers, also one that is no Monitor.":                                                 "a function of package store, tested there",
	"Now asks a store for its time: that of a count of no job.":                                                          "a function of package store, tested there",
	"Missing names the abilities beyond the core that the store does not have, so that their absence can be said aloud.": "a function of package store, tested there",
}

const behindItsBack = "needs a way around the store, and another server: the Postgres adapter's own tests have both; the other adapters remember no places"

const saysWhat = "says what the thing is, and promises nothing"

const contractHead = `# The contract and its proof

The contract itself is the package documentation of ` + "`internal/store`" + `: read it with ` + "`go doc -all ./internal/store`" + `. This page is
made from the code (` + "`go test ./internal/conformance -run Rules -update`" + `) and shows the table of transitions, and which case of the
suite proves which rule. Run one case on the memory adapter with ` + "`go test ./internal/store/adapters/memory -run 'Conformance/Cases/NAME'`" + `.

## Transitions

Every operation leaves a job in any other phase as it is. Fail, never, after, snooze and release are the forms of NAck.

| Operation | From | Guard | To | Token | Attempts | Retries | Also |
|---|---|---|---|---|---|---|---|
`

const rulesHead = `
## Rules and cases

| Rule | In a few words | Proved by |
|---|---|---|
`

const unprovedHead = `
## Sentences without a case

| Sentence | Why |
|---|---|
`
