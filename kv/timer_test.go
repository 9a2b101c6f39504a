package kv_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/enginetest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A timed engine has a clock.
type timed struct {
	kv.Engine
	now func() time.Time
}

func (e timed) View(ctx context.Context) (kv.View, error) {
	v, err := e.Engine.View(ctx)
	return timedView{v, e.now()}, err
}

type timedView struct {
	kv.View
	now time.Time
}

func (v timedView) Now() time.Time { return v.now }

// The time of an engine counts, and not that of the process. It does not go back by a little.
func TestTimeOfAnEngine(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s, err := kv.Open(t.Context(), timed{memkv.New().Connect(), func() time.Time { return now }}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	is := func(want time.Time) {
		counts, err := s.Count(t.Context(), contract.Filter{})
		require.NoError(t, err)
		require.Equal(t, want, counts.Now)
	}
	first := now
	is(first)
	now = first.Add(-2 * time.Second)
	is(first)
	now = first.Add(time.Second)
	is(now)
}

// The cases of an engine notice a time that goes back.
func TestTimeOfAnEngineMustNotGoBack(t *testing.T) {
	begun := time.Now()
	for _, k := range enginetest.Cases() {
		on := func(step time.Duration) enginetest.Adapter {
			var views atomic.Int64
			db := memkv.New()
			return enginetest.Adapter{New: func(context.Context) (*enginetest.Place, error) {
				return &enginetest.Place{Open: func(context.Context) (kv.Engine, error) {
					return timed{db.Connect(), func() time.Time { return begun.Add(step * time.Duration(views.Add(1))) }}, nil
				}}, nil
			}}
		}
		require.NoError(t, k.Run(t.Context(), on(time.Millisecond)), k.Name)
		if k.Name == "View/TimeDoesNotGoBack" {
			require.ErrorContains(t, k.Run(t.Context(), on(-time.Millisecond)), "a view shows the time")
		}
	}
}
