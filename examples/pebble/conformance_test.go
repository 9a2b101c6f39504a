package jqpebble

import (
	"context"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestEngine(t *testing.T) { jqtest.Engine(t, engines(t)) }

func TestConformance(t *testing.T) { jqtest.Run(t, jqtest.EngineStores(engines(t))) }

// engines keeps each in a folder of its own.
func engines(t *testing.T) jqtest.EngineAdapter {
	return jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
		folder := t.TempDir()
		return &jqtest.EnginePlace{Open: func(context.Context) (kv.Engine, error) {
			return openEngine(folder, vfs.Default, slog.Default())
		}}, nil
	}}
}
