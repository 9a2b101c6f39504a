// Package pgtest finds a Postgres server for tests, or starts one that is thrown away.
//
// JQ_TEST_POSTGRES, a DSN, names a server that is there already. Without it, a cluster is started from the installed binaries
// in a folder of its own: by the command with-postgres for many packages, else by each test process for itself. A cluster
// whose owner was killed is cleared away by the next one that starts.
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

// T is the part of testing.TB that is needed here, so that the command links no testing.
type T interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// cluster is the one of this process, started when a test first asks for it.
var cluster struct {
	sync.Mutex
	*Cluster
}

// DSN names the server of the tests.
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

// Tests are those of a package for who looks after them further, as goleak does: their Run is [Main].
type Tests struct{ M interface{ Run() int } }

// Run is Main.
func (t Tests) Run() int { return Main(t.M) }

// Main runs the tests of a package, and clears away what they have started. It belongs in TestMain.
func Main(m interface{ Run() int }) int {
	code := m.Run()
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

var schemas atomic.Int64

// Schema is a name that no other test uses, of a schema that is dropped when the test ends.
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

// NewSchema is a name that no other test uses.
func NewSchema() string {
	return fmt.Sprintf("jq %d-%x-%d", os.Getpid(), time.Now().UnixNano(), schemas.Add(1))
}

// Drop drops the schema, if it is there.
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
