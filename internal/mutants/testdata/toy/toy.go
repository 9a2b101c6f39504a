// Package toy has faults planted in it, of which it is known what becomes of them.
package toy

import (
	"errors"
	"sync"
	"time"
)

var errNone = errors.New("none")

// Patience stands outside of all functions.
const Patience = 3 * time.Second

// Sum is tested well.
func Sum(a, b int) int { return a + b }

// Adult is not tested at its boundary.
func Adult(age int) bool { return age >= 18 }

// Countdown goes on for ever with a fault in it.
func Countdown(n int) {
	for n > 0 {
		n--
	}
}

// Larger has a fault that nobody can notice.
func Larger(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// Untested has no test.
func Untested(a, b bool) bool { return a && b }

// First is tested where there is none.
func First(all []int) (int, error) {
	if len(all) == 0 {
		return 0, errNone
	}
	return all[0], nil
}

// A Counter counts, and its test does not look whether it does so under a lock.
type Counter struct {
	mu sync.Mutex
	n  int
}

// Add counts.
func (c *Counter) Add() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// A Gauge is tested by several goroutines at once.
type Gauge struct {
	mu sync.Mutex
	at int
}

// Set sets it.
func (g *Gauge) Set(at int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = at
}
