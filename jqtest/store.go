package jqtest

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
)

// Epoch is the time at which a new test store starts. It is a full hour, so that times are easy to read.
var Epoch = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// A Store keeps jobs in memory. Its clock moves only when the test moves it, by Advance or [Drain]. Give it to the code under test as its
// jq.Store.
type Store struct {
	*jq.MemoryStore
	Clock *clock.Mock // set it, or move it by Advance
}

// NewStore returns an empty store whose time is Epoch. The store is closed when the test ends.
func NewStore(t testing.TB) *Store {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(Epoch)
	s := &Store{jq.NewMemory(&jq.MemoryOptions{Clock: clk}), clk}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// Advance moves the clock. The next Drain runs the jobs that are due by then.
func (s *Store) Advance(d time.Duration) { s.Clock.Add(d) }
