package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/jqtest"
)

func adapter(t *testing.T) jqtest.Adapter {
	t.Helper()
	empty := emptyFile(t)
	return jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		folder := t.TempDir()
		path := filepath.Join(folder, "jobs.db")
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			return nil, err
		}
		open := func(ctx context.Context) (*Store, error) {
			// The cases ask what is kept, not whether the disk has it: that is for the processes that are killed.
			return Open(ctx, path, &Options{Clock: clk, Synchronous: Normal})
		}
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		instance := &jqtest.Instance{Store: s, DB: s.DB().DB}
		instance.Reopen = func(ctx context.Context) (store.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = open(ctx)
			if err == nil {
				instance.DB = s.DB().DB
			}
			return s, err
		}
		instance.Remove = func() error {
			if err := s.Close(); err != nil {
				return err
			}
			return os.RemoveAll(folder)
		}
		return instance, nil
	}}
}

// emptyFile returns the file of a store without jobs. To copy it takes a fifth of the time of making one, and the cases need hundreds.
func emptyFile(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.db")
	s, err := Open(t.Context(), path, &Options{Clock: clock.NewMock()})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	return file
}

func TestConformanceOnSQLite(t *testing.T) { jqtest.Run(t, adapter(t)) }
