package kv_test

import (
	"context"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// excluded is what no store of the kit does.
var excluded = jqtest.KVExclusions()

func TestConformanceOfTheKit(t *testing.T) {
	jqtest.Run(t, jqtest.Adapter{New: newInstance, Exclude: excluded})
}

// newInstance opens a store on an empty map.
func newInstance(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
	return instanceOf(ctx, clk, memkv.New().Connect)
}

// instanceOf opens a store on an engine, and opens it again on another one of the same map.
func instanceOf(ctx context.Context, clk clock.Clock, connect func() kv.Engine) (*jqtest.Instance, error) {
	open := func(ctx context.Context) (contract.Store, error) {
		return kv.Open(ctx, connect(), &kv.Options{Clock: clk})
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
		Remove: func() error { return s.Close() },
	}, nil
}
