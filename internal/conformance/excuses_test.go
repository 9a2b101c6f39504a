package conformance_test

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
made from the code (` + "`go test ./internal/conformance -run Contract -update`" + `) and shows the table of transitions, and the cases of the suite.

## Transitions

Every operation leaves a job in any other phase as it is. Fail, never, after, snooze and release are the forms of NAck.

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
