package main

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
)

// ledger is books without tables.
type ledger struct {
	jobs        *sql.DB
	done        []order
	refused     []int64
	from, until time.Time // of the latest report
}

func (l *ledger) finish(ctx context.Context, run *jq.Run, done order) error {
	tx, err := l.jobs.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := run.FinishTx(ctx, tx); err != nil {
		return err
	}
	l.done = append(l.done, done)
	return tx.Commit()
}

func (l *ledger) refuse(_ context.Context, id int64) error {
	l.refused = append(l.refused, id)
	return nil
}

func (l *ledger) sold(_ context.Context, from, until time.Time) (sales, error) {
	l.from, l.until = from, until
	return sales{Orders: 2, Cents: 3100}, nil
}

// A bench has the jobs in memory, on a clock that the test moves.
type bench struct {
	*jqtest.Store
	*ledger
	client   *jq.Client
	handlers *jq.Handlers
}

// newBench has a bank that gives these answers, the last of them again and again, and appends to keys whom it was asked to charge.
func newBench(t *testing.T, keys *[]string, answers ...int) *bench {
	t.Helper()
	bankServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answers[min(len(*keys), len(answers)-1)])
		*keys = append(*keys, r.Header.Get("Idempotency-Key"))
	}))
	t.Cleanup(bankServer.Close)
	b := &bench{Store: jqtest.NewStore(t)}
	b.ledger, b.client = &ledger{jobs: b.DB()}, jq.NewClient(b.Store, nil)
	b.handlers = (&worker{client: b.client, books: b.ledger, bank: bank(bankServer.URL)}).handlers()
	return b
}

var teapot = order{ID: 7, Customer: "ada", Item: "teapot", Cents: 2500}

func (b *bench) place(t *testing.T, o order) []jq.Enqueued {
	t.Helper()
	added, err := b.client.EnqueueFlow(t.Context(), flow(o, "card-1"), nil)
	require.NoError(t, err)
	return added
}

func kinds(ran []jqtest.Ran) (all []string) {
	for _, r := range ran {
		all = append(all, r.Kind)
	}
	return all
}

func TestAnOrderIsPaidThenPackedAndInvoicedThenShipped(t *testing.T) {
	var keys []string
	b := newBench(t, &keys, http.StatusOK)
	b.place(t, teapot)
	jqtest.RequireEnqueued(t, b, jqtest.Want{Queue: orderQueue, LimitKey: "ada", Times: 4})

	ran := jqtest.Drain(t, b.Store, b.handlers, nil)
	assert.Equal(t, []string{"pay", "pack", "invoice", "ship"}, kinds(ran))
	assert.Equal(t, []order{{ID: 7, State: paid}, {ID: 7, State: shipped, Parcel: "parcel-000007", Invoice: "invoice-000007"}}, b.done)
	assert.Equal(t, []string{"order-7"}, keys)
}

func TestARefusedCardEndsTheOrder(t *testing.T) {
	var keys []string
	b := newBench(t, &keys, http.StatusPaymentRequired)
	added := b.place(t, teapot)

	ran := jqtest.Drain(t, b.Store, b.handlers, nil)
	require.Len(t, ran, 1, "no retry, and nothing is packed")
	assert.Equal(t, jq.Dead, ran[0].After.Phase())
	assert.Equal(t, "the bank refuses the card", ran[0].After.Error)
	assert.Equal(t, []int64{7}, b.refused)
	assert.Empty(t, b.done)
	for _, waiting := range added[1:] {
		job, err := b.client.Get(t.Context(), waiting.ID)
		require.NoError(t, err)
		assert.Equal(t, jq.Cancelled, job.State, job.Kind)
	}
}

func TestABusyBankIsAskedAgainAboutTheSameCharge(t *testing.T) {
	var keys []string
	b := newBench(t, &keys, http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusOK)
	b.place(t, teapot)

	ran := jqtest.Drain(t, b.Store, b.handlers, nil)
	assert.Equal(t, []string{"pay", "pay", "pay", "pack", "invoice", "ship"}, kinds(ran))
	assert.Equal(t, "the bank answers 503 Service Unavailable", ran[0].After.Error)
	assert.Equal(t, []string{"order-7", "order-7", "order-7"}, keys)
	assert.InDelta(t, 2, ran[2].At.Sub(ran[1].At).Seconds(), 0.2, "the second wait is twice as long as the first, less up to 10 %%")
}

func TestADoubleClickIsFoundForAMinute(t *testing.T) {
	b := newBench(t, new([]string), http.StatusOK)
	first := b.place(t, teapot)
	other := teapot
	other.Customer = "bob"
	assert.False(t, b.place(t, other)[0].Duplicate, "another customer")

	again := func() jq.Enqueued {
		tx, err := b.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		added, err := b.client.EnqueueFlowTx(t.Context(), tx, flow(teapot, "card-1"), nil)
		require.NoError(t, err)
		return added[0]
	}
	jqtest.Drain(t, b.Store, b.handlers, nil)
	b.Advance(59 * time.Second)
	twice := again()
	assert.True(t, twice.Duplicate, "although the order is shipped")
	assert.Equal(t, first[0].ID, twice.ID)
	b.Advance(time.Second)
	assert.False(t, again().Duplicate)
}

// A reseller's orders do not hold up those of others.
func TestCustomersTakeTurns(t *testing.T) {
	b := newBench(t, new([]string), http.StatusOK)
	_, err := b.client.DeclarePolicy(t.Context(), orderQueue, *queues[orderQueue].Policy)
	require.NoError(t, err)
	for id := range int64(5) {
		b.place(t, order{ID: id, Customer: "reseller", Item: string(rune('a' + id))})
	}
	b.place(t, teapot)

	claimed, err := b.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: orderQueue, Limit: 10, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	var customers []string
	for _, job := range claimed {
		customers = append(customers, job.LimitKey())
	}
	assert.ElementsMatch(t, []string{"reseller", "ada", "reseller"}, customers)
}

func TestTheReportIsAboutTheDayBeforeItsTime(t *testing.T) {
	b := newBench(t, new([]string), http.StatusOK)
	require.NoError(t, putSchedules(t.Context(), b.client))
	require.NoError(t, putSchedules(t.Context(), b.client), "the second start")
	schedule, err := b.client.Schedule(t.Context(), "nightly-report")
	require.NoError(t, err)
	night := time.Date(2026, time.January, 2, 1, 0, 0, 0, time.UTC) // 2:00 in Berlin
	require.Equal(t, night, schedule.NextAt)

	b.Clock.Set(night.Add(time.Hour)) // the servers were away
	server, err := jq.NewServer(b.Store, b.handlers, &jq.ServerOptions{Queues: map[string]jq.QueueOptions{}})
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, func() bool {
		counts, err := b.client.Count(t.Context(), jq.Filter{Kind: "report"})
		return assert.NoError(t, err) && counts.Total() == 1
	}, time.Minute, time.Millisecond, "the schedule has fired")
	require.NoError(t, server.Stop(t.Context()))

	ran := jqtest.Drain(t, b.Store, b.handlers, nil)
	require.Len(t, ran, 1)
	assert.JSONEq(t, `{"orders":2,"cents":3100}`, string(ran[0].After.Result))
	assert.Equal(t, night, b.until)
	assert.Equal(t, 24*time.Hour, b.until.Sub(b.from))
}
