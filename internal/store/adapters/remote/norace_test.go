//go:build !race

package remote

// underRace says that the race detector runs, which makes some tests too slow.
const underRace = false
