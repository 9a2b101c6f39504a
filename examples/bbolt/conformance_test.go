package bbolt

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestEngine(t *testing.T) {
	jqtest.Engine(t, jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
		path := filepath.Join(t.TempDir(), "jobs.bolt")
		return &jqtest.EnginePlace{Open: func(context.Context) (kv.Engine, error) {
			return openEngine(path, &Options{NoSync: true})
		}}, nil
	}})
}

func TestConformance(t *testing.T) {
	jqtest.Run(t, jqtest.Adapter{
		New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
			return newInstance(ctx, t.TempDir(), clk)
		},
		Exclude: jqtest.KVExclusions(),
	})
}

// newInstance creates an empty store in the folder. The cases do not test loss of power, so commits need no sync.
func newInstance(ctx context.Context, folder string, clk clock.Clock) (*jqtest.Instance, error) {
	open := func(ctx context.Context) (contract.Store, error) {
		return Open(ctx, filepath.Join(folder, "jobs.bolt"), &Options{Clock: clk, NoSync: true})
	}
	return jqtest.Reopened(ctx, open, nil)
}
