// Package unique has the code of the guide docs/guides/unique.md.
package unique

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// Index is the payload of a job that indexes a document anew.
type Index struct {
	Document int
	Text     string
}

func (Index) Kind() string { return "index" }

func Example() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	for range 2 {
		added, err := client.Enqueue(ctx, Index{Document: 7}, &jq.EnqueueOptions{UniqueKey: "index/7"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(added.ID, added.Duplicate, added.State)
	}
	// Output:
	// 1 false ready
	// 1 true ready
}

// saved is called each time somebody saves the document.
func saved(ctx context.Context, client *jq.Client, document int, text string) error {
	_, err := client.Enqueue(ctx, Index{document, text}, &jq.EnqueueOptions{
		UniqueKey: fmt.Sprint("index/", document),
		Replace:   true,             // the job that waits gets this text,
		Delay:     10 * time.Second, // and waits ten seconds from now
	})
	return err
}

func TestManySavesBecomeOneJob(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	for _, text := range []string{"a", "ab", "abc"} {
		require.NoError(t, saved(t.Context(), client, 7, text))
		store.Advance(5 * time.Second)
	}
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, Index) error { return nil })
	ran := jqtest.Drain(t, store, &handlers, nil)
	require.Len(t, ran, 1)
	assert.JSONEq(t, `{"Document":7,"Text":"abc"}`, string(ran[0].Payload))
	assert.Equal(t, jqtest.Epoch.Add(20*time.Second), ran[0].At)
}

// remind sends at most one reminder a day, whatever becomes of it.
func remind(ctx context.Context, client *jq.Client, user int) (jq.Enqueued, error) {
	return client.Enqueue(ctx, Remind{user}, &jq.EnqueueOptions{
		UniqueKey: fmt.Sprint("remind/", user),
		UniqueFor: 24 * time.Hour,
	})
}

// Remind is the payload of a reminder.
type Remind struct{ User int }

func (Remind) Kind() string { return "remind" }

func TestOneReminderADay(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, Remind) error { return nil })
	var added []bool
	for range 4 { // every eight hours
		answer, err := remind(t.Context(), client, 1)
		require.NoError(t, err)
		added = append(added, !answer.Duplicate)
		jqtest.Drain(t, store, &handlers, nil)
		store.Advance(8 * time.Hour)
	}
	assert.Equal(t, []bool{true, false, false, true}, added)
}

// order enqueues once, however often it has to try.
func order(ctx context.Context, client *jq.Client, id int) (jq.Enqueued, error) {
	options := &jq.EnqueueOptions{RequestKey: fmt.Sprint("order/", id)}
	added, err := client.Enqueue(ctx, Remind{id}, options)
	for (errors.Is(err, jq.ErrInDoubt) || errors.Is(err, jq.ErrUnavailable)) && ctx.Err() == nil {
		added, err = client.Enqueue(ctx, Remind{id}, options)
	}
	return added, err
}

func TestRequestIsRepeated(t *testing.T) {
	store := &doubtful{jqtest.NewStore(t), 2}
	client := jq.NewClient(store, nil)
	added, err := order(t.Context(), client, 1)
	require.NoError(t, err)
	assert.Equal(t, int64(1), added.ID)
	jqtest.RequireEnqueued(t, store, jqtest.Want{Times: 1})

	_, err = client.Enqueue(t.Context(), Remind{2}, &jq.EnqueueOptions{RequestKey: "order/1"})
	require.ErrorIs(t, err, jq.ErrInvalid, "another job under the same key")
	t.Log(err)
}

// A doubtful store loses its first answers.
type doubtful struct {
	*jqtest.Store
	lost int
}

func (d *doubtful) Enqueue(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	added, err := d.Store.Enqueue(ctx, req)
	if d.lost--; err == nil && d.lost >= 0 {
		return nil, jq.ErrInDoubt
	}
	return added, err
}

// What is saved while a job runs must not be lost: the run may have read the document before.
func savedWhileRunning(ctx context.Context, client *jq.Client, document int) error {
	options := &jq.EnqueueOptions{UniqueKey: fmt.Sprint("index/", document)}
	added, err := client.Enqueue(ctx, Index{Document: document}, options)
	if err == nil && added.Duplicate && added.State == jq.InFlight {
		options.UniqueKey += "/next"
		options.After = []jq.Wait{{ID: added.ID, Any: true}} // not before that run has ended
		_, err = client.Enqueue(ctx, Index{Document: document}, options)
	}
	return err
}

func TestSaveWhileTheJobRuns(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ Index) error {
		if run.ID > 1 {
			return nil
		}
		for range 3 {
			if err := savedWhileRunning(ctx, client, 7); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, savedWhileRunning(t.Context(), client, 7))
	require.NoError(t, savedWhileRunning(t.Context(), client, 7))
	var ids []int64
	for _, ran := range jqtest.Drain(t, store, &handlers, nil) {
		ids = append(ids, ran.ID)
	}
	assert.Equal(t, []int64{1, 2}, ids)
}
