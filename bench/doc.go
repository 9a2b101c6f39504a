// Command bench measures jq beside its peers: all in one run, in turns, on the same machine and the same servers.
//
//	go run . --peers jq-postgres,river --scenarios drain,continuous --rounds 3
//
// Every run has an empty store, and counts only if the store has the end of every job afterwards. Figures of different machines,
// or of different runs of this command, say nothing beside each other: what counts are ratios in one run.
package main
