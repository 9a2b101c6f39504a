package main

import (
	"fmt"
	"strings"
)

// A layer is tests of one sort of fault, which are run together.
type layer struct {
	name   string
	folder string // of the package
	tests  string // the pattern of their names
	goal   string // the count that says how far it has come; runs are counted too
	want   int    // of that
	seeded bool   // the faults are drawn from a seed that can be named
	with   string // a setting for the tests, name=value, where they need one
}

const (
	storms   = "internal/chaos"
	sqlite   = "internal/store/adapters/sqlite"
	postgres = "internal/store/adapters/postgres"
)

// seedVariable names the seed to the tests that draw from one.
const seedVariable = "JQ_CHAOS_SEED"

// runs is the count that every layer has.
const runs = "runs"

var layers = []layer{
	{"chaos on SQLite", storms, "^TestChaosOnSQLite$", "kills", 1000, true, ""},
	{"chaos on Postgres", storms, "^TestChaosOnPostgres$", "kills", 1000, true, ""},
	{"failover, synchronous standby", storms, "^TestFailoverToASynchronousStandby$", "failovers", 10, true, ""},
	{"failover, standby that lags", storms, "^TestFailoverToAStandbyThatLags$", "failovers", 10, true, ""},
	{"killed writers on SQLite", sqlite, "^TestKilledProcess", "kills", 1000, false, ""},
	{"killed writers on Postgres", postgres, "^TestKilledProcess", "kills", 1000, false, ""},
	{"killed restores and backups of SQLite", sqlite, "^Test(RestoreKilled|KilledBackup|KilledRestore)", "kills", 1000, false, ""},
	{"copies of SQLite files in use", sqlite, "^TestCopyOfAnyMoment", "copies", 1000, false, ""},
	{"files of SQLite moved, replaced, without room", sqlite, "^Test(LogOf|Replaced|FileCopied|CopyIn|CopiesAnd|BackupWritten|FullDisk|ProcessThatEnded)", runs, 20, false, ""},
	{"processes stopped in a write to SQLite", sqlite, "^Test(Stopped|EveryCallIsAnswered|OpenBeside|Stranger)", runs, 20, false, ""},
	{"deaths of Postgres in mid-call", postgres, "^Test(ServerDies|LostClaims)", "deaths of the server", 200, false, ""},
	{"Postgres away, sessions ended", postgres, "^TestServerAway$", "sessions ended", 3000, false, ""},
	{"Postgres silent, its disk full", postgres, "^Test(Silen|FullDisk)", runs, 20, false, ""},
	{"commits broken off", postgres, "^TestCommitThatWasBrokenOff", "commits broken off", 1000, false, ""},
	{"failover after a standby was cut off", postgres, "^TestAcknowledgedSurvives", "failovers", 10, false, ""},
	{"attack on a server on SQLite", storms, "^TestAttackOnSQLite$", "seconds under attack", 600, true, "JQ_ATTACK_LENGTH=10m"},
	{"attack on a server on Postgres", storms, "^TestAttackOnPostgres$", "seconds under attack", 600, true, "JQ_ATTACK_LENGTH=10m"},
}

// again runs the layer once more, as often as its goal says.
func (l layer) again() string { return fmt.Sprintf(`make chaos FLAGS="-layers '%s'"`, l.name) }

// command repeats one run of the layer.
func (l layer) command(seed uint64) string {
	text := fmt.Sprintf("go test ./%s -count=1 -timeout %v -run '%s'", l.folder, longest, l.tests)
	if name, value, ok := strings.Cut(l.with, "="); ok {
		text = fmt.Sprintf("%s='%s' %s", name, value, text)
	}
	if l.seeded {
		text = fmt.Sprintf("%s=%d %s", seedVariable, seed, text)
	}
	return text
}
