//go:build race

package main

// underRace says that the race detector runs, under which a process takes long to start.
const underRace = true
