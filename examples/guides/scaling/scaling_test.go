// Package scaling has the code of the guide docs/guides/scaling.md.
package scaling

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// Cells are independent stores. Each has queues of its own.
type Cells struct {
	stores []jq.Store
	of     map[string]int // the store of each queue
}

// Client enqueues to the store that has the queue.
func (c *Cells) Client(queue string) (*jq.Client, error) {
	i, known := c.of[queue]
	if !known {
		return nil, errors.New("no cell has the queue " + queue)
	}
	return jq.NewClient(c.stores[i], nil), nil
}

// Run runs the jobs of all cells until the context ends, or one of the servers fails.
func (c *Cells) Run(ctx context.Context, handlers *jq.Handlers) error {
	queues := make([]map[string]jq.QueueOptions, len(c.stores))
	for queue, i := range c.of {
		if queues[i] == nil {
			queues[i] = map[string]jq.QueueOptions{}
		}
		queues[i][queue] = jq.QueueOptions{}
	}
	servers, ctx := errgroup.WithContext(ctx)
	for i, store := range c.stores {
		servers.Go(func() error {
			server, err := jq.NewServer(store, handlers, &jq.ServerOptions{Queues: queues[i]})
			if err != nil {
				return err
			}
			return server.Run(ctx)
		})
	}
	return servers.Wait()
}

type Mail struct{ To string }

func (Mail) Kind() string { return "mail" }

func TestEachQueueHasItsCell(t *testing.T) {
	cells := &Cells{of: map[string]int{"mail": 0, "bills": 1, "reports": 1, "media": 2}}
	for _, name := range []string{"a", "b", "c"} {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), name), nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, store.Close()) })
		cells.stores = append(cells.stores, store)
	}
	ran := make(chan string, 4)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, _ Mail) error {
		ran <- run.Queue
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cells.Run(ctx, &handlers) }()
	for queue, cell := range cells.of {
		client, err := cells.Client(queue)
		require.NoError(t, err)
		added, err := client.Enqueue(t.Context(), Mail{To: "ada"}, &jq.EnqueueOptions{Queue: queue})
		require.NoError(t, err)
		select {
		case got := <-ran:
			assert.Equal(t, queue, got)
		case <-time.After(time.Minute):
			t.Fatal("no server ran the job of the queue", queue)
		}
		job, err := cells.stores[cell].Get(t.Context(), added.ID)
		require.NoError(t, err)
		assert.Equal(t, queue, job.Queue)
	}
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the servers do not stop")
	}
	_, err := cells.Client("unknown")
	require.EqualError(t, err, "no cell has the queue unknown")
}

// If one server cannot run, the others stop too.
func TestCellsEndTogether(t *testing.T) {
	closed, open := jq.NewMemory(nil), jq.NewMemory(nil)
	require.NoError(t, closed.Close())
	t.Cleanup(func() { assert.NoError(t, open.Close()) })
	cells := &Cells{stores: []jq.Store{open, closed}, of: map[string]int{"a": 0, "b": 1}}
	ended := make(chan error, 1)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, Mail) error { return nil })
	go func() { ended <- cells.Run(t.Context(), &handlers) }()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, jq.ErrClosed)
	case <-time.After(time.Minute):
		t.Fatal("the servers do not stop")
	}
}
