package bbolt

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestEngine(t *testing.T) { jqtest.Engine(t, engines(t)) }

func TestConformance(t *testing.T) { jqtest.Run(t, jqtest.EngineStores(engines(t))) }

// engines keeps each in a file of its own. The cases do not test loss of power, so commits need no sync.
func engines(t *testing.T) jqtest.EngineAdapter {
	return jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
		path := filepath.Join(t.TempDir(), "jobs.bolt")
		return &jqtest.EnginePlace{Open: func(context.Context) (kv.Engine, error) {
			return openEngine(path, &Options{NoSync: true})
		}}, nil
	}}
}
