// Package pgtest finds a Postgres server for tests, or starts a temporary one.
//
// JQ_TEST_POSTGRES, a DSN, names an existing server. Without it, pgtest starts a cluster from the installed binaries in a
// folder of its own: the command with-postgres starts one for many packages; otherwise each test process starts its own. When a
// cluster starts, it removes those whose owner was killed.
package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// Variable is the environment variable that names the server.
const Variable = "JQ_TEST_POSTGRES"

// T is the part of testing.TB that this package needs, so that the command does not link testing.
type T interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// cluster is the cluster of this process, started when a test first asks for it.
var cluster struct {
	sync.Mutex
	*Cluster
}

// DSN returns the DSN of the tests' server.
func DSN(t T) string {
	t.Helper()
	if dsn := os.Getenv(Variable); dsn != "" {
		return dsn
	}
	cluster.Lock()
	defer cluster.Unlock()
	if cluster.Cluster == nil {
		c, err := Start(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		cluster.Cluster = c
	}
	return cluster.DSN
}

// Tests wraps a testing.M for others that run the tests, like goleak: its Run is [Main].
type Tests struct{ M interface{ Run() int } }

// Run is Main.
func (t Tests) Run() int { return Main(t.M) }

// Main runs the tests of a package and removes what they have started. Call it in TestMain.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	cluster.Lock()
	defer cluster.Unlock()
	if cluster.Cluster != nil {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
	}
	return code
}

// ends are called when the tests have run.
var ends []func() error

var schemas atomic.Int64

// Schema returns a schema name that no other test uses. The schema is dropped when the test ends.
func Schema(t T, dsn string) string {
	t.Helper()
	name := NewSchema()
	t.Cleanup(func() {
		if err := Drop(dsn, name); err != nil {
			t.Fatal(err)
		}
	})
	return name
}

// NewSchema returns a name that no other test uses.
func NewSchema() string {
	return fmt.Sprintf("jq %d-%x-%d", os.Getpid(), time.Now().UnixNano(), schemas.Add(1))
}

// Drop drops the schema if it exists.
func Drop(dsn, schema string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return drop(db, schema)
}

func drop(db *sql.DB, schema string) error {
	_, err := db.Exec(`DROP SCHEMA IF EXISTS ` + pq.QuoteIdentifier(schema) + ` CASCADE`)
	return err
}
