package conformance_test

// unproved are the sentences of the contract that have no case, each with the reason.
var unproved = map[string]string{
	"Package store defines the contract between jq and the storage that keeps its jobs.":                                                          saysWhat,
	"A store keeps jobs durably, leases each job to one worker at a time, and rejects every write that a worker makes after its lease was ended.": "the sum of what follows",
	"Every adapter implements [Store].": "the compiler checks it",
	"The small interfaces [Transactor], [Notifier], [QueueKeeper], [PolicyKeeper], [Registry], [ScheduleKeeper], [GroupKeeper], [Fencer], [Monitor], [ActivityReader] and [ActivityKeeper] are optional abilities.": "the compiler checks it",
	"Each sentence above a method is a promise to the caller and a duty of the adapter, and a case of the conformance suite quotes it.":                                                                             "TestSentencesHaveCases checks it",
	"[Transitions] holds the same life cycle as data.":                                 "the cases of the matrix are made from it",
	"The holder of a lease can end it only with Ack or with one of the forms of NAck.": "there is no other call",
	"The requests have methods that check these limits, so that all adapters reject the same requests with the same messages: [EnqueueRequest.Check], [ClaimRequest.Check] and the others.": "says how; what is refused has its cases",
	"A Store keeps jobs.": saysWhat,
	"The following rules apply to every method, including the methods of the optional abilities.":                                                                                                                 saysWhat,
	"For a full disk, a lost connection or an unreachable database, the error is ErrUnavailable if it is known that nothing was committed, and ErrInDoubt if the answer to the commit was lost.":                  "needs faults of the store's own backend: the adapters' own tests make them",
	"Changes that bypass the store must not hide anything for good, whether a database was restored or failed over and lost its latest changes, a clock was set back for a moment, or rows were changed by hand.": behindItsBack,
	"Stores that keep claiming and recovering must find a job that is claimable after such a change, or a lease that has expired, within 30 seconds.":                                                             behindItsBack,
	"If one round of the store's own sweep through everything that waits takes longer, they must find it within one round.":                                                                                       behindItsBack,
	"FetchAndClaim claims due jobs of one queue, leases each of them to the worker, and returns them as they are stored.":                                                                                         "the sum of what follows",
	"If the adapter says so, claims take jobs of the same lane and priority in another order for a second after claims of several processes have met.":                                                            severalProcesses,
	"ErrDenied: the caller may not do this, and nothing was applied.":                                                                                                                                             "needs a store that knows its callers: the adapters' own tests ask with a wrong role and without a right",
	"Repeating the call does not help until somebody has granted the right.":                                                                                                                                      "needs a store that knows its callers: the adapters' own tests ask with a wrong role and without a right",
	"Close releases everything that the store holds.":                                                                                                                                                             "memory and files are not seen from outside: the adapters' own tests look",
	"A Tx is a caller's transaction, such as a *sql.Tx or a *sqlx.Tx.":                                                                                                                                            "the compiler checks it",
	"A Notifier tells callers when to look for jobs and when to extend their leases, so that they need not do it often.":                                                                                          saysWhat,
	"A QueueKeeper lists the queues and can pause them.":                                                                                                                                                          saysWhat,
	"A PolicyKeeper keeps a policy for each queue, so that all programs that use the store follow the same settings.":                                                                                             saysWhat,
	"A Monitor answers the questions that probes and metrics ask every few seconds.":                                                                                                                              saysWhat,
	"The cost of an answer grows with the number of queues, not with the number of their jobs.":                                                                                                                   "a cost is not seen from outside: the adapters' own tests ask a million jobs",
	"A List or a Count that takes longer than the store allows returns an OverlongError, which matches ErrUnavailable.":                                                                                           "needs a reading that lasts: the adapters' own tests hold one up",
	"A Registry lists workers.":                                                                                      saysWhat,
	"A ScheduleKeeper keeps schedules, and enqueues their jobs.":                                                     saysWhat,
	"It does not read expressions: servers compute the times.":                                                       saysWhat,
	"An ActivityReader adds up what happened to jobs within the last hours or days.":                                 saysWhat,
	"An ActivityKeeper keeps the sums of what all servers did, by minute, queue and kind.":                           saysWhat,
	"Each server adds up its own work and hands it over from time to time, so no job costs a write.":                 saysWhat,
	"After ErrInDoubt, a caller that must not count twice forgets them.":                                             saysWhat,
	"A Fencer makes a store safe to use after it was restored from a backup, or after a failover that lost data.":    saysWhat,
	"Use EndLeases for a copy that workers went on using before it was fenced.":                                      saysWhat,
	"These workers must be stopped.":                                                                                 saysWhat,
	"Ping checks that a store answers, even if the store is not a Monitor.":                                          "a function of package store, tested there",
	"Now asks a store for its time: it counts no jobs, and returns the time of that count.":                          "a function of package store, tested there",
	"Missing names the optional abilities that the store does not have, so that a program can report their absence.": "a function of package store, tested there",
}

const severalProcesses = "needs several processes: the kit's own tests open several stores, and other stores never do it"

const behindItsBack = "needs a way around the store, and another server: the Postgres adapter's own tests have both; the other adapters remember no places"

const saysWhat = "says what the thing is, and promises nothing"

const contractHead = `# The contract and its proof

The contract itself is the package documentation of ` + "`internal/store`" + `: read it with ` + "`go doc -all ./internal/store`" + `. This page is
made from the code (` + "`go test ./internal/conformance -run Contract -update`" + `) and shows the table of transitions, and the cases of the suite.

## Transitions

An operation does not change a job in any other phase. Fail, never, after, snooze and release are the forms of NAck.

| Operation | From | Guard | To | Token | Attempts | Retries | Also |
|---|---|---|---|---|---|---|---|
`

const groupsHead = `
## Cases

If you write an adapter, make the groups pass in this order: each needs only what the groups above it are about. Run one group or one case with
` + "`go test -run 'Conformance/Cases/Enqueue'`" + `. A failed case prints the sentence of the contract that was broken, the line of the case, and the calls that it made.

| Group | About | Cases |
|---|---|---|
`

const unprovedHead = `
## Sentences without a case

| Sentence | Why |
|---|---|
`
