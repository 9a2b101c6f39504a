//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-ed332417/jq"
)

// What handlers do, by the kind of the job.
const (
	plain     = "plain"     // its effect, at once
	polite    = "polite"    // its effect after a while, unless its context ends before
	stubborn  = "stubborn"  // as polite, but deaf to its context: it goes on when its lease is lost
	boastful  = "boastful"  // its effect first, then it is as deaf: it asks for an Ack that comes late
	failing   = "failing"   // an error at first, then its effect
	snoozing  = "snoozing"  // it is put off a few times, counts that in its checkpoint, then its effect
	within    = "within"    // its effect in the database, in one transaction with the end of the job
	regretted = "regretted" // polite, and cancelled by the producer
	panicking = "panicking" // a panic, each time
	deadly    = "deadly"    // it kills its process, each time
)

var deck = []struct {
	kind  string
	cards int
}{
	{plain, 30}, {polite, 14}, {stubborn, 10}, {boastful, 10}, {failing, 10}, {snoozing, 8}, {within, 10}, {regretted, 5}, {panicking, 2}, {deadly, 1},
}

// A plan is what a job is to be. It follows from the seed and the number of the job, so that all processes know it.
type plan struct {
	n          int
	kind       string
	queue      string
	times      int // how often it fails or snoozes first
	pause      time.Duration
	delay      time.Duration
	maxRetries int
	key        string // unique, if any
	limitKey   string // if any
}

// numbers is a source of choices that belong to one thing.
func numbers(seed uint64, what int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(what))) }

func planOf(seed uint64, n int) plan {
	if n >= firstLate {
		return latePlan(n)
	}
	rng := numbers(seed, n)
	p := plan{n: n, kind: drawKind(rng), queue: jq.DefaultQueue, times: 1 + rng.IntN(3), maxRetries: 30}
	switch n { // there is one of each in every storm
	case 2 * callSize:
		p.kind = deadly
	case 3 * callSize:
		p.kind = panicking
	}
	p.pause = time.Duration(20+rng.IntN(280)) * time.Millisecond
	if rng.IntN(4) == 0 {
		p.delay = time.Duration(rng.IntN(200)) * time.Millisecond
	}
	switch p.kind {
	case plain, polite, failing:
		if rng.IntN(3) == 0 {
			p.key = uniqueKeys[rng.IntN(len(uniqueKeys))]
		}
	case panicking:
		p.maxRetries = 2
	case deadly:
		p.maxRetries = 1
	}
	if i := rng.IntN(2 * len(limitKeys)); i < len(limitKeys) {
		p.limitKey = limitKeys[i]
	}
	if rng.IntN(5) == 0 || n == 3*callSize {
		p.queue, p.key, p.limitKey = orderedQueue, "", lines[rng.IntN(len(lines))]
	}
	return p
}

var uniqueKeys = []string{"key a", "key b", "key c", "key d"}

// limitKeys are those of half of the jobs: the others have none.
var limitKeys = []string{"customer a", "customer b", "customer c"}

func drawKind(rng *rand.Rand) string {
	card := rng.IntN(100)
	for _, d := range deck {
		if card -= d.cards; card < 0 {
			return d.kind
		}
	}
	return plain
}

// mustDie says that no run of the job succeeds.
func (p plan) mustDie() bool { return p.kind == panicking || p.kind == deadly }

type document struct{ N int }

func (p plan) item() jq.Item {
	payload, err := json.Marshal(document{p.n})
	if err != nil {
		panic(err) // a number can be written
	}
	return jq.Item{Payload: jq.Raw{Name: p.kind, Document: payload}, Options: &jq.EnqueueOptions{
		Queue: p.queue, Delay: p.delay, MaxRetries: new(p.maxRetries), UniqueKey: p.key, LimitKey: p.limitKey,
		Backoff: jq.Backoff{Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond, Jitter: 10},
	}}
}

// Jobs are enqueued by calls of at most so many.
const callSize = 6

// callOf is the jobs of one call: the same, however often and by whichever process it is made.
func callOf(seed uint64, call int) []plan {
	plans := make([]plan, 1+numbers(seed, -1-call).IntN(callSize))
	for i := range plans {
		plans[i] = planOf(seed, call*callSize+i)
	}
	return plans
}

func requestKey(call int) string { return fmt.Sprint("call ", call) }
