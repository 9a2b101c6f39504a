package jqpebble

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestConformance(t *testing.T) {
	jqtest.Run(t, jqtest.Adapter{
		New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
			return newInstance(ctx, t.TempDir(), clk)
		},
		Exclude: jqtest.KVExclusions(),
	})
}

func newInstance(ctx context.Context, folder string, clk clock.Clock) (*jqtest.Instance, error) {
	open := func(ctx context.Context) (*kv.Store, error) {
		return Open(ctx, filepath.Join(folder, "jobs"), &kv.Options{Clock: clk})
	}
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &jqtest.Instance{
		Store: s,
		Reopen: func(ctx context.Context) (contract.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = open(ctx)
			return s, err
		},
		Remove: func() error {
			if err := s.Close(); err != nil {
				return err
			}
			return os.RemoveAll(folder)
		},
	}, nil
}
