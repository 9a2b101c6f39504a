// Package race tells tests whether the race detector runs. It makes a program several times slower, and one that reads JSON or
// is SQLite in Go many times: what looks for no race is then left to a run without it.
package race
