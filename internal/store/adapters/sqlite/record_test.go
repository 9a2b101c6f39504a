package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/recordtest"
)

// TestStatementsDoWhatTheRecordDoes to a job in each phase.
func TestStatementsDoWhatTheRecordDoes(t *testing.T) {
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	recordtest.Run(t, recordtest.Adapter{Store: s, Clock: clk, Read: func(id int64) store.Record {
		found, err := read(t.Context(), s, nil, func(t *txn) (map[int64]*store.Record, error) { return t.byID([]int64{id}) })
		require.NoError(t, err)
		return *found[id]
	}})
}
