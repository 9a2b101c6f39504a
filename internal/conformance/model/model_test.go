package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance/model"
)

func TestEveryFaultHasItsOwnName(t *testing.T) {
	names := map[model.Fault]bool{}
	for _, m := range model.Faults() {
		assert.False(t, names[m.Fault], "two faults are named %s", m.Fault)
		names[m.Fault] = true
	}
}
