// Package retries has the code of the guide docs/guides/retries.md.
package retries

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
)

// Charge is the payload of a payment. All jobs of its kind have the same retries.
type Charge struct {
	Card  string
	Cents int
}

func (Charge) Kind() string { return "charge" }

// Defaults gives every charge six runs: the first one, and five retries within about half an hour.
func (Charge) Defaults() jq.EnqueueOptions {
	return jq.EnqueueOptions{
		MaxRetries: new(5),
		Backoff:    jq.Backoff{Base: time.Minute, Cap: 10 * time.Minute, Jitter: 20},
		Timeout:    time.Minute,
	}
}

// What a bank may answer.
var (
	errDown     = errors.New("the bank is down")
	errNoCard   = errors.New("no such card")
	errTooOften = errors.New("too many requests")
	errNight    = errors.New("closed at night")
)

// pay stands for a call of the bank.
type pay func(ctx context.Context, c Charge) error

// handler turns what the bank answers into what becomes of the job.
func handler(pay pay) func(context.Context, *jq.Run, Charge) error {
	return func(ctx context.Context, run *jq.Run, c Charge) error {
		err := pay(ctx, c)
		switch {
		case errors.Is(err, errNoCard):
			return jq.Never(err) // dead at once: a retry would not help
		case errors.Is(err, errTooOften):
			return jq.RetryAfter(2*time.Minute, err) // the bank says when; counts as a retry
		case errors.Is(err, errNight):
			return jq.SnoozeBecause(8*time.Hour, err) // not a failure; counts as none
		}
		return err // nil: succeeded; otherwise a retry after the backoff, or dead
	}
}

// bank answers one error after the other, and nil from then on.
func bank(answers ...error) pay {
	return func(context.Context, Charge) error {
		if len(answers) == 0 {
			return nil
		}
		first := answers[0]
		answers = answers[1:]
		return first
	}
}

// charge enqueues a charge of Ada's card, and returns what becomes of it.
func charge(t *testing.T, pay pay, options *jq.EnqueueOptions) (lines []string, last jq.Job) {
	t.Helper()
	store := jqtest.NewStore(t)
	_, err := jq.NewClient(store, nil).Enqueue(t.Context(), Charge{"ada", 100}, options)
	require.NoError(t, err)
	var handlers jq.Handlers
	jq.Handle(&handlers, handler(pay))
	for _, ran := range jqtest.Drain(t, store, &handlers, nil) {
		lines = append(lines, fmt.Sprint(ran.At.Sub(jqtest.Epoch), " ", ran.After.Phase()))
		last = ran.After
	}
	return lines, last
}

var exact = &jq.EnqueueOptions{Backoff: jq.Backoff{Jitter: -1}}

func TestEachAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		pay  pay
		want []string
	}{
		"succeeds":        {bank(), []string{"0s succeeded"}},
		"down twice":      {bank(errDown, errDown), []string{"0s retrying", "1m0s retrying", "3m0s succeeded"}},
		"too often":       {bank(errTooOften), []string{"0s retrying", "2m0s succeeded"}},
		"at night":        {bank(errNight, errNight, errNight, errNight, errNight, errNight), []string{"0s ready", "8h0m0s ready", "16h0m0s ready", "24h0m0s ready", "32h0m0s ready", "40h0m0s ready", "48h0m0s succeeded"}},
		"no such card":    {bank(errNoCard), []string{"0s dead"}},
		"down for good":   {bank(errDown, errDown, errDown, errDown, errDown, errDown), []string{"0s retrying", "1m0s retrying", "3m0s retrying", "7m0s retrying", "15m0s retrying", "25m0s dead"}},
		"the bank panics": {func(context.Context, Charge) error { panic("no bank") }, []string{"0s retrying", "1m0s retrying", "3m0s retrying", "7m0s retrying", "15m0s retrying", "25m0s dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines, _ := charge(t, c.pay, exact)
			assert.Equal(t, c.want, lines)
		})
	}
}

func TestNoRetries(t *testing.T) {
	lines, last := charge(t, bank(errDown), &jq.EnqueueOptions{MaxRetries: new(0)})
	assert.Equal(t, []string{"0s dead"}, lines)
	assert.Equal(t, "the bank is down", last.Error)
}

// A server ends the lease of the first run while its handler works, as if its process had been asleep. What this run returns changes nothing.
func TestLostLease(t *testing.T) {
	for name, answer := range map[string]error{"which then succeeds": nil, "which then fails": errDown, "which then wants no retry": jq.Never(errNoCard)} {
		t.Run(name, func(t *testing.T) {
			store := jqtest.NewStore(t)
			_, err := jq.NewClient(store, nil).Enqueue(t.Context(), Charge{"ada", 100}, exact)
			require.NoError(t, err)
			var handlers jq.Handlers
			jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ Charge) error {
				if run.Retries > 0 {
					return nil
				}
				store.Advance(2 * time.Hour)
				lost, err := store.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				require.Len(t, lost, 1)
				require.ErrorIs(t, run.SaveCheckpoint(ctx, "paid"), jq.ErrStaleLease)
				require.ErrorIs(t, context.Cause(ctx), jq.ErrLeaseLost)
				return answer
			})
			ran := jqtest.Drain(t, store, &handlers, nil)
			require.Len(t, ran, 2)
			assert.Equal(t, jq.Retrying, ran[0].After.Phase())
			assert.Equal(t, 1, ran[0].After.Retries, "the lost lease counts as a retry")
			assert.Equal(t, 2*time.Hour+time.Minute, ran[1].At.Sub(jqtest.Epoch), "the backoff began when the lease was recovered")
			assert.Equal(t, jq.Succeeded, ran[1].After.Phase())
		})
	}
}

func TestTwentyRetriesTakeAboutNineHours(t *testing.T) {
	store := jqtest.NewStore(t)
	_, err := jq.NewClient(store, nil).Enqueue(t.Context(), jq.Raw{Name: "plain", Document: []byte("{}")}, exact)
	require.NoError(t, err)
	var handlers jq.Handlers
	handlers.Func("plain", func(context.Context, *jq.Run) error { return errDown })
	ran := jqtest.Drain(t, store, &handlers, nil)
	require.Len(t, ran, 21)
	assert.Equal(t, jq.Dead, ran[20].After.Phase())
	assert.InDelta(t, 9, ran[20].At.Sub(jqtest.Epoch).Hours(), 0.2)
}

// Dead jobs stay until somebody requeues or deletes them.
func Example_dead() {
	ctx := context.Background()
	store := jq.NewMemory(nil)
	defer store.Close()
	client := jq.NewClient(store, nil)
	fail(ctx, store, client, deaths{died: func(id int64) { fmt.Println("died:", id) }})

	dead := jq.Filter{Kind: "charge", States: []jq.State{jq.Dead}}
	for job, err := range client.Jobs(ctx, dead) {
		if err != nil {
			fmt.Println(err)
			return
		}
		detail, err := client.Get(ctx, job.ID) // with the history of its attempts
		fmt.Println(job.ID, job.Error, len(detail.History), err)
	}
	n, err := client.RequeueAll(ctx, dead) // after you have mended the cause
	fmt.Println(n, err)
	// Output:
	// died: 1
	// 1 no such card 1 <nil>
	// 1 <nil>
}

// fail makes a job that is dead.
func fail(ctx context.Context, store jq.Store, client *jq.Client, observer jq.Observer) {
	var handlers jq.Handlers
	jq.Handle(&handlers, handler(bank(errNoCard)))
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Observer: observer})
	if err == nil {
		err = server.Start(ctx)
	}
	added, err2 := client.Enqueue(ctx, Charge{"ada", 100}, nil)
	_, err3 := client.Wait(ctx, added.ID)
	if err := errors.Join(err, err2, err3, server.Stop(ctx)); err != nil {
		panic(err)
	}
}

// An observer learns of each end that the store has accepted, also of jobs that died by a lost lease.
type deaths struct {
	jq.NopObserver
	died func(id int64)
}

func (d deaths) Ended(job jq.Job, _ jq.Ending, phase jq.State, _ time.Duration) {
	if phase == jq.Dead {
		d.died(job.ID)
	}
}

func (d deaths) Recovered(leases []jq.Recovered) {
	for _, lease := range leases {
		if lease.Next.IsZero() { // no retry is left
			d.died(lease.ID)
		}
	}
}

func TestDeathByALostLeaseIsObserved(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	for _, retries := range []int{0, 1} {
		_, err := client.Enqueue(t.Context(), Charge{"ada", 100}, &jq.EnqueueOptions{MaxRetries: new(retries)})
		require.NoError(t, err)
	}
	_, err := store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 2, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	store.Advance(time.Minute)
	recovered, err := store.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	require.Len(t, recovered, 2)
	var died []int64
	deaths{died: func(id int64) { died = append(died, id) }}.Recovered(recovered)
	assert.Equal(t, []int64{1}, died)
}
