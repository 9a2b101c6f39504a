package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soak runs the command on a module of two stores.
func soak(ctx context.Context, root string, args ...string) (string, error) {
	var out strings.Builder
	err := run(ctx, append([]string{"-root", root, "-stores", "memory,sqlite"}, args...), &out)
	return out.String(), err
}

func TestStoresThatAreDoneAreLeftAlone(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/toy")))
	faulty := filepath.Join(root, "internal", "chaos", "faulty sqlite")
	require.NoError(t, os.WriteFile(faulty, nil, 0o600))
	printed, err := soak(t.Context(), root, "-length", "1s")
	require.ErrorContains(t, err, "the soak of sqlite has failed")
	require.ErrorContains(t, err, "FAIL memory")
	assert.Contains(t, printed, "1s of unknown\nok   memory, soaked for 1s\n")
	log, err := os.ReadFile(filepath.Join(root, ".cache", "soak", "sqlite.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "--- FAIL: TestSoak/sqlite")

	require.NoError(t, os.Remove(faulty))
	printed, err = soak(t.Context(), root, "-length", "1s")
	require.NoError(t, err)
	assert.Contains(t, printed, "known already: 1s of unknown\nok   memory")
	assert.Contains(t, printed, "soaking sqlite")

	printed, err = soak(t.Context(), root, "-length", "2s")
	require.NoError(t, err)
	assert.NotContains(t, printed, "known already", "of another length")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = soak(ctx, root, "-length", "3s")
	require.ErrorIs(t, err, context.Canceled)
	printed, err = soak(t.Context(), root, "-length", "2s")
	require.NoError(t, err)
	assert.NotContains(t, printed, "soaking", "what was broken off leaves the verdicts as they were")
}
