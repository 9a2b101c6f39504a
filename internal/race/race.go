// Package race tells tests whether the race detector is on. It slows a program down several times, and code that parses JSON or
// runs SQLite in Go many times. Tests that look for no race can then leave such work to a run without the detector.
package race
