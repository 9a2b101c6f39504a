//go:build race

package bbolt_test

// underRace says that the race detector runs, which makes the reading of JSON many times slower.
const underRace = true
