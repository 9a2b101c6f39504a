//go:build !race

package conformance_test

// underRace says that the race detector runs, which makes some tests too slow.
const underRace = false
