package sqlite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A process that opened the file before it knew of waits ends a job by statements that say nothing of them. What waits goes on.
func TestEndsByOlderProgramsAreTold(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
	next, last := n, n
	next.After = []store.Wait{{Item: 0}}
	last.After = []store.Wait{{Item: 2}}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, next, n, last}})
	require.NoError(t, err)
	for _, statement := range []string{
		`UPDATE jobs SET state = 'succeeded', finished_at = 1, finished_by = 'ack' WHERE id = ?`,
		`UPDATE jobs SET state = 'failed', finished_at = 1 WHERE id = 2 + ?`,
		`DELETE FROM jobs WHERE id = 2 + ?`,
	} {
		_, err := s.DB().Exec(statement, added[0].ID)
		require.NoError(t, err)
	}
	settled, err := s.Settle(t.Context(), 10)
	require.NoError(t, err)
	states := map[int64]store.State{}
	for _, one := range settled {
		states[one.ID] = one.State
	}
	assert.Equal(t, map[int64]store.State{added[1].ID: store.Ready, added[3].ID: store.Cancelled}, states)
}
