package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/jqtest"
)

func adapter(t *testing.T) jqtest.Adapter {
	t.Helper()
	return jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		folder := t.TempDir()
		path := filepath.Join(folder, "jobs.db")
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

func TestConformanceOnSQLite(t *testing.T) { jqtest.Run(t, adapter(t)) }
