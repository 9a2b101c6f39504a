package cli

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// A read-only server keeps no store in order: it makes no server of the library, which would need the store.
func TestReadOnlyServeKeepsNothingInOrder(t *testing.T) {
	keep, err := (&serveFlags{readOnly: true}).keeper(nil, nil, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, keep(ctx))
}

// A server sets a memory limit, unless GOMEMLIMIT is set or the store keeps jobs in memory.
func TestServerLimitsItsMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, one := range []struct {
		store jq.Store
		set   string
		want  int64
	}{{file, "", 320 << 20}, {file, "1GiB", math.MaxInt64}, {jq.NewMemory(nil), "", math.MaxInt64}} {
		std := quiet(&bytes.Buffer{}, &bytes.Buffer{})
		std.env = func(string) (string, bool) { return one.set, one.set != "" }
		undo := (&app{std: std}).limitMemory(one.store)
		assert.Equal(t, one.want, debug.SetMemoryLimit(-1), "%T, %q", one.store, one.set)
		undo()
		assert.EqualValues(t, math.MaxInt64, debug.SetMemoryLimit(-1))
	}
}
