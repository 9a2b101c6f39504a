package main

import (
	"fmt"
	"os"
	"strings"
)

// A layer is a group of tests for one kind of fault, which run together.
type layer struct {
	name   string
	folder string // of the package
	tests  string // a pattern for their names
	goal   string // the count that measures progress; runs are counted too
	want   int    // how much of it
	seeded bool   // a seed determines the faults
	with   string // an environment variable for the tests, name=value, if they need one
	needs  string // an environment variable that must be set, else the layer is left out
}

const (
	storms   = "internal/chaos"
	sqlite   = "internal/store/adapters/sqlite"
	postgres = "internal/store/adapters/postgres"
	etcd     = "etcd"
	tikv     = "tikv"
)

// seedVariable passes the seed to the tests.
const seedVariable = "JQ_CHAOS_SEED"

// runs is the count that every layer has.
const runs = "runs"

var layers = []layer{
	{"chaos on SQLite", storms, "^TestChaosOnSQLite$", "kills", 1000, true, "", ""},
	{"chaos on Postgres", storms, "^TestChaosOnPostgres$", "kills", 1000, true, "", ""},
	{"failover, synchronous standby", storms, "^TestFailoverToASynchronousStandby$", "failovers", 10, true, "", ""},
	{"failover, standby that lags", storms, "^TestFailoverToAStandbyThatLags$", "failovers", 10, true, "", ""},
	{"failover, two synchronous standbys", storms, "^TestFailoverToOneOfTwoSynchronousStandbys$", "failovers", 10, true, "", ""},
	{"failover by Patroni", storms, "^TestPatroniFailsOver$", "failovers", 10, true, "", "JQ_TEST_PATRONI"},
	{"killed writers on SQLite", sqlite, "^TestKilledProcess", "kills", 1000, false, "", ""},
	{"killed writers on Postgres", postgres, "^TestKilledProcess", "kills", 1000, false, "", ""},
	{"killed restores and backups of SQLite", sqlite, "^Test(RestoreKilled|KilledBackup|KilledRestore)", "kills", 1000, false, "", ""},
	{"copies of SQLite files in use", sqlite, "^TestCopyOfAnyMoment", "copies", 1000, false, "", ""},
	{"files of SQLite moved, replaced, without room", sqlite, "^Test(LogOf|Replaced|FileCopied|CopyIn|CopiesAnd|BackupWritten|FullDisk|ProcessThatEnded)", runs, 20, false, "", ""},
	{"processes stopped in a write to SQLite", sqlite, "^Test(Stopped|EveryCallIsAnswered|OpenBeside|Stranger)", runs, 20, false, "", ""},
	{"deaths of Postgres in mid-call", postgres, "^Test(ServerDies|LostClaims)", "deaths of the server", 200, false, "", ""},
	{"Postgres away, sessions ended", postgres, "^TestServerAway$", "sessions ended", 3000, false, "", ""},
	{"Postgres silent, its disk full", postgres, "^Test(Silen|FullDisk)", runs, 20, false, "", ""},
	{"commits broken off", postgres, "^TestCommitThatWasBrokenOff", "commits broken off", 1000, false, "", ""},
	{"failover after a standby was cut off", postgres, "^TestAcknowledgedSurvives", "failovers", 10, false, "", ""},
	{"members of etcd killed", etcd, "^Test((Leader|Follower|BothFollowers|AllMembers)(Is|Are)Killed|MemberIsReplaced)$", "kills", 100, false, "JQ_ETCD_TIMES=10", ""},
	{"members of etcd stopped", etcd, "^Test(LeaderIsStopped|StoppedLeader)", "stops", 40, false, "JQ_ETCD_TIMES=10", ""},
	{"programs cut off from members of etcd", etcd, "^Test(ProgramsAreCutOff|LostCommits)$", "cuts", 60, false, "JQ_ETCD_TIMES=10", ""},
	{"the suite on etcd", etcd, "^Test(Conformance|HistoriesOnSeveralStores)", runs, 1, false, "", ""},
	{"the suite on TiKV", tikv, "^Test(Conformance|HistoriesOnSeveralStores)", runs, 1, false, "", ""},
	{"schedules on SQLite", storms, "^TestSchedulesOnSQLite$", "kills", 300, true, "JQ_SCHEDULE_LENGTH=10m", ""},
	{"schedules on Postgres", storms, "^TestSchedulesOnPostgres$", "kills", 300, true, "JQ_SCHEDULE_LENGTH=10m", ""},
	{"attack on a server on SQLite", storms, "^TestAttackOnSQLite$", "seconds under attack", 600, true, "JQ_ATTACK_LENGTH=10m", ""},
	{"attack on a server on Postgres", storms, "^TestAttackOnPostgres$", "seconds under attack", 600, true, "JQ_ATTACK_LENGTH=10m", ""},
}

// again returns the command that runs the layer until its goal.
func (l layer) again() string { return fmt.Sprintf(`make chaos FLAGS="-layers '%s'"`, l.name) }

// command returns the command that repeats one run of the layer.
func (l layer) command(seed uint64) string {
	text := fmt.Sprintf("go -C %s test -count=1 -timeout %v -run '%s'", l.folder, longest, l.tests)
	if name, value, ok := strings.Cut(l.with, "="); ok {
		text = fmt.Sprintf("%s='%s' %s", name, value, text)
	}
	if l.needs != "" {
		text = fmt.Sprintf("%s='%s' %s", l.needs, os.Getenv(l.needs), text)
	}
	if l.seeded {
		text = fmt.Sprintf("%s=%d %s", seedVariable, seed, text)
	}
	return text
}
