package memory

import (
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/recordtest"
)

// TestStoreDoesWhatTheRecordDoes to a job in each phase.
func TestStoreDoesWhatTheRecordDoes(t *testing.T) {
	clk := clock.NewMock()
	s := New(Options{Clock: clk})
	recordtest.Run(t, recordtest.Adapter{Store: s, Clock: clk, Read: func(id int64) store.Record {
		s.mu.Lock()
		defer s.mu.Unlock()
		return *s.record(s.jobs.get(id))
	}})
}
