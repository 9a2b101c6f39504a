//go:build !race

package sqlite

// underRace says that the race detector runs, which makes SQLite in Go many times slower.
const underRace = false
