package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const day = 24 * time.Hour

// The defaults of R61 stand in one place: whoever asks a policy that sets nothing gets them.
func TestRetentionByDefault(t *testing.T) {
	for state, want := range map[State]time.Duration{
		Succeeded: day, Cancelled: 7 * day, Dead: KeepForEver, Ready: KeepForEver, InFlight: KeepForEver, Retrying: KeepForEver, Failed: KeepForEver,
	} {
		assert.Equal(t, want, Policy{Version: 3}.Retention(state), state)
	}
	p := Policy{RetainSucceeded: KeepForEver, RetainCancelled: time.Hour, RetainDead: 2 * time.Hour}
	assert.Equal(t, KeepForEver, p.Retention(Succeeded))
	assert.Equal(t, time.Hour, p.Retention(Cancelled))
	assert.Equal(t, 2*time.Hour, p.Retention(Dead))
}

func TestPolicySets(t *testing.T) {
	assert.False(t, Policy{}.Sets())
	assert.False(t, Policy{Version: 7}.Sets())
	for _, p := range []Policy{{RetainSucceeded: day}, {RetainCancelled: 7 * day}, {RetainDead: KeepForEver}} {
		assert.True(t, p.Sets(), "%+v, also where it is the default", p)
	}
}

// A store that keeps microseconds keeps KeepForEver.
func TestForEverFitsTheResolution(t *testing.T) {
	assert.Equal(t, KeepForEver, KeepForEver.Truncate(Resolution))
	assert.Equal(t, KeepForEver, time.Duration(KeepForEver.Microseconds())*time.Microsecond)
}
