package shop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// Did the code under test enqueue the right job?
func TestSignUpEnqueuesAMail(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)

	if err := SignUp(t.Context(), client, "Ada"); err != nil {
		t.Fatal(err)
	}
	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{Name: "Ada"}, Queue: "mail", Times: 1})
	jqtest.RefuteEnqueued(t, store, jqtest.Want{Kind: "reminder"})
}

// An outbox is a mailer that fails as often as it is told to.
type outbox struct {
	fails int
	sent  []string
}

func (o *outbox) Send(_ context.Context, name, text string) error {
	if o.fails > 0 {
		o.fails--
		return errors.New("the mail server is away")
	}
	o.sent = append(o.sent, text+" "+name)
	return nil
}

// Do the handlers do the work, with all retries and delays? The drain moves the store's clock.
func TestUserGetsBothMails(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	mails := &outbox{fails: 1}
	if err := SignUp(t.Context(), client, "Ada"); err != nil {
		t.Fatal(err)
	}

	ran := jqtest.Drain(t, store, Handlers(client, mails), nil)

	assert.Equal(t, []string{"welcome Ada", "reminder Ada"}, mails.sent)
	require.Len(t, ran, 3) // the first run failed
	assert.Equal(t, "the mail server is away", ran[0].After.Error)
	assert.Equal(t, 24*time.Hour, ran[2].At.Sub(ran[1].At))
}

// Up to some moment only.
func TestNoReminderOnTheFirstDay(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	mails := &outbox{}
	if err := SignUp(t.Context(), client, "Ada"); err != nil {
		t.Fatal(err)
	}
	jqtest.Drain(t, store, Handlers(client, mails), &jqtest.DrainOptions{Until: jqtest.Epoch.Add(23 * time.Hour)})
	assert.Equal(t, []string{"welcome Ada"}, mails.sent)
}

// Is nothing enqueued if the transaction is rolled back? The store in memory has transactions of database/sql, without tables.
func TestRollbackEnqueuesNothing(t *testing.T) {
	store := jqtest.NewStore(t)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := SignUpTx(t.Context(), tx, jq.NewClient(store, nil), "Ada"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	jqtest.RefuteEnqueued(t, store, jqtest.Want{})
}

// Does it work with a real server, and several handlers at once? In a bubble of synctest a day passes in no time.
func TestServerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := jq.NewMemory(nil)
		defer store.Close()
		client := jq.NewClient(store, nil)
		mails := &outbox{fails: 2}
		server, err := jq.NewServer(store, Handlers(client, mails), &jq.ServerOptions{Queues: map[string]jq.QueueOptions{"mail": {}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := SignUp(t.Context(), client, "Ada"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Wait(t.Context(), 1); err != nil { // the welcome
			t.Fatal(err)
		}
		if _, err := client.Wait(t.Context(), 2); err != nil { // the reminder, a day later
			t.Fatal(err)
		}
		if err := server.Stop(t.Context()); err != nil { // before the bubble ends
			t.Fatal(err)
		}
		assert.Equal(t, []string{"welcome Ada", "reminder Ada"}, mails.sent)
	})
}
