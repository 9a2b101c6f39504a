//go:build !race

package server_test

// underRace says that the race detector runs, which makes some tests too slow.
const underRace = false
