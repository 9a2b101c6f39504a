package kv_test

import (
	"context"
	"testing"

	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// excluded is what no store of the kit does.
var excluded = jqtest.KVExclusions()

func TestEngineInMemory(t *testing.T) {
	jqtest.Engine(t, enginesOf(func() func() kv.Engine { return memkv.New().Connect }))
}

func TestConformanceOfTheKit(t *testing.T) {
	jqtest.Run(t, jqtest.EngineStores(enginesOf(func() func() kv.Engine { return memkv.New().Connect })))
}

// enginesOf has a map for each place. The function makes one, and returns what connects to it.
func enginesOf(create func() (connect func() kv.Engine)) jqtest.EngineAdapter {
	return jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
		connect := create()
		return &jqtest.EnginePlace{Open: func(context.Context) (kv.Engine, error) { return connect(), nil }}, nil
	}}
}
