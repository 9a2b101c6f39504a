package trial

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Calls that try in vain cost more than others.
func TestFewerCallsTryAfterOthersInVain(t *testing.T) {
	var a Trial
	between := func() (n int) {
		for !a.Tries() {
			n++
		}
		return n
	}
	for _, want := range []int{0, 1, 3, 7, 15, 31, 63, 63, 63} {
		assert.Equal(t, want, between())
		a.Vain()
	}
	assert.Equal(t, 63, between())
	assert.True(t, a.Vain())
	for range 5 {
		assert.False(t, a.Vain(), "others have tried at the same time")
	}
	assert.Equal(t, 63, between())
	a.Well()
	for _, want := range []int{0, 1} {
		assert.Equal(t, want, between(), "a call did not try in vain")
		a.Vain()
	}
}
