//go:build !race

package random

// underRace says that the race detector runs, which makes some tests too slow.
const underRace = false
