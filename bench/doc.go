// Command bench measures jq and its peers: all in one run, in turns, on the same machine and the same servers.
//
//	go run . --peers jq-postgres,river --scenarios drain,continuous --rounds 3
//
// Every run has an empty store, and counts only if the store afterwards has the end of every job. Do not compare figures of
// different machines, or of different runs of this command: only the ratios within one run mean something.
//
// With --compare it measures nothing, and plays accidents instead: see package compare.
package main
