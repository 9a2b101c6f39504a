package memory_test

import (
	"context"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestConformance(t *testing.T) {
	jqtest.Run(t, jqtest.Adapter{
		New: func(_ context.Context, clk clock.Clock) (*jqtest.Instance, error) {
			s := memory.New(memory.Options{Clock: clk})
			return &jqtest.Instance{Store: s, DB: s.DB()}, nil
		},
		Exclude: map[string]string{"Reopen/": "memory keeps nothing beyond its process"},
	})
}
