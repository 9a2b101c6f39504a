//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary is every process: what it is stands in the environment.
const (
	envName   = "JQ_CHAOS_NAME"
	envLedger = "JQ_CHAOS_LEDGER"
	envSQLite = "JQ_CHAOS_SQLITE"
	envDSN    = "JQ_CHAOS_DSN"
	envPooled = "JQ_CHAOS_POOLED"
	envSeed   = "JQ_CHAOS_SEED" // of the test too, to have the same storm again
	envSoak   = "JQ_CHAOS_SOAK"
)

const producerName = "producer"

// How a process says why it ended.
const (
	exitFailed    = 1
	exitUnwritten = 3
	exitOrphan    = 4
)

// A role is what a process is told.
type role struct {
	name       string
	ledger     string // its address
	sqlitePath string
	dsn        string // if there is no file
	pooled     bool   // it leads through PgBouncer
	seed       uint64
	soak       bool // no job kills its process, the producer takes its time, and deletes what has ended
}

func (r role) environment() []string {
	return []string{
		envName + "=" + r.name, envLedger + "=" + r.ledger, envSQLite + "=" + r.sqlitePath, envDSN + "=" + r.dsn,
		envPooled + "=" + strconv.FormatBool(r.pooled), envSeed + "=" + strconv.FormatUint(r.seed, 10),
		envSoak + "=" + strconv.FormatBool(r.soak),
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(envName) == "" {
		os.Exit(m.Run())
	}
	life := play
	switch os.Getenv(envName) {
	case hostileName:
		life = attackAll
	case spinnerName:
		life = spin
	case schedulesName:
		life = fireSchedules
	}
	if err := life(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errUnwritten) {
			os.Exit(exitUnwritten)
		}
		os.Exit(exitFailed)
	}
}

// play is the life of a process that a test has started. It ends with the test, whatever becomes of that.
func play() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphan)
	}()
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		return err
	}
	pooled, err := strconv.ParseBool(os.Getenv(envPooled))
	if err != nil {
		return err
	}
	soak, err := strconv.ParseBool(os.Getenv(envSoak))
	if err != nil {
		return err
	}
	r := role{os.Getenv(envName), os.Getenv(envLedger), os.Getenv(envSQLite), os.Getenv(envDSN), pooled, seed, soak}
	l, err := dialLedger(r.name, r.ledger)
	if err != nil {
		return err
	}
	if r.sqlitePath == "" && r.dsn == "" {
		return alone(ctx, r, l)
	}
	if strings.HasPrefix(r.name, producerName) {
		return produce(ctx, r, l)
	}
	return work(ctx, r, l)
}
