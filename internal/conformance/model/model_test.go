package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEveryFaultHasItsOwnName(t *testing.T) {
	names := map[Fault]bool{}
	for _, m := range Faults() {
		assert.False(t, names[m.Fault], "two faults are named %s", m.Fault)
		names[m.Fault] = true
	}
}
