// Package trial says when to try a quick way that may be in vain.
package trial

import "sync"

// mostWithout is how many calls do not try, after others that tried in vain.
const mostWithout = 63

// A Trial remembers how calls fared that tried. Its zero value lets the next one try.
type Trial struct {
	mu      sync.Mutex // guards the fields below
	without int        // so many calls do not try
	vain    int        // as many as did not after the latest one that tried in vain
}

// Tries reports whether the next call tries. Call Well or Vain when it has.
func (t *Trial) Tries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.without > 0 {
		t.without--
		return false
	}
	return true
}

// Well notes that a call has tried, and not in vain.
func (t *Trial) Well() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vain = 0
}

// Vain notes that a call has tried in vain: the next ones do not, more of them each time. It reports whether this is so because of this call: others may have
// tried at the same time.
func (t *Trial) Vain() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.without > 0 {
		return false
	}
	t.vain = min(2*t.vain+1, mostWithout)
	t.without = t.vain
	return true
}
