package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lib/pq"
)

// Spares lends schemas to the tests of a package, one after the other. Creating and dropping the tables takes the server ten times as
// long as emptying them. A schema whose tables, functions or statistics a test has changed is dropped.
type Spares struct {
	Create func(ctx context.Context, dsn, schema string) error // creates the tables

	mu   sync.Mutex // guards what follows
	db   *sql.DB
	free []spare
}

type spare struct{ name, catalog string }

// Take returns the name of a schema that is as new, for one test. The test must have closed its stores when it ends.
func (s *Spares) Take(t T, dsn string) string {
	t.Helper()
	taken, err := s.take(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.giveBack(taken); err != nil {
			t.Fatal(err)
		}
	})
	return taken.name
}

func (s *Spares) take(dsn string) (spare, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			return spare{}, err
		}
		s.db = db
		ends = append(ends, s.drop)
	}
	if n := len(s.free); n > 0 {
		last := s.free[n-1]
		s.free = s.free[:n-1]
		return last, nil
	}
	made := spare{name: NewSchema()}
	err := s.Create(context.Background(), dsn, made.name)
	if err == nil {
		made.catalog, err = catalog(s.db, made.name)
	}
	return made, err
}

// giveBack empties the schema for the next test, or drops it if it is not what it was.
func (s *Spares) giveBack(used spare) error {
	same, err := s.restore(&used)
	if err != nil {
		return fmt.Errorf("emptying the schema %q: %w", used.name, err)
	}
	if !same {
		return drop(s.db, used.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, used)
	return nil
}

func (s *Spares) restore(used *spare) (same bool, err error) {
	if left, err := outlived(s.db, used.name); left || err != nil {
		return false, err
	}
	now, err := catalog(s.db, used.name)
	if err != nil || now != used.catalog {
		return false, err
	}
	if err := truncate(s.db, used.name); err != nil {
		return false, err
	}
	used.catalog, err = catalog(s.db, used.name) // a table that was emptied has another file
	return err == nil, err
}

func (s *Spares) drop() error {
	var errs []error
	for _, one := range s.free {
		errs = append(errs, drop(s.db, one.name))
	}
	return errors.Join(append(errs, s.db.Close())...)
}

// outlived reports whether sessions that have worked in the schema stay, although the stores are closed. The server needs a moment to
// end those that it was told to end.
func outlived(db *sql.DB, schema string) (left bool, err error) {
	for range 100 {
		const query = `
			SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND strpos(query, $1) > 0)`
		if err := db.QueryRow(query, schema).Scan(&left); err != nil || !left {
			return false, err
		}
		if _, err := db.Exec(`SELECT pg_sleep(0.002)`); err != nil {
			return false, err
		}
	}
	return true, nil
}

// catalog returns what changes with each change of a table, index, sequence, function or trigger of the schema, of its rights, of the
// statistics or of the list of migrations: which transactions have written their rows in the catalogs.
func catalog(db *sql.DB, schema string) (string, error) {
	var all string
	err := db.QueryRow(`
		WITH
			of AS (SELECT oid, xmin, nspname FROM pg_namespace WHERE nspname = $1),
			tables AS (SELECT pg_class.oid, pg_class.xmin FROM pg_class JOIN of ON relnamespace = of.oid),
			written AS (
				SELECT xmin::text AS by FROM of
				UNION ALL SELECT xmin::text FROM tables
				UNION ALL SELECT xmin::text FROM pg_attribute WHERE attrelid IN (SELECT oid FROM tables)
				UNION ALL SELECT xmin::text FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM tables)
				UNION ALL SELECT xmin::text FROM pg_statistic WHERE starelid IN (SELECT oid FROM tables)
				UNION ALL SELECT pg_proc.xmin::text FROM pg_proc JOIN of ON pronamespace = of.oid
				UNION ALL SELECT xmin::text FROM `+pq.QuoteIdentifier(schema)+`.migrations)
		SELECT coalesce(string_agg(by, ' ' ORDER BY by), '') FROM written`, schema).Scan(&all)
	var refused *pq.Error
	if errors.As(err, &refused) && strings.HasPrefix(string(refused.Code), "42") { // there is no such table or schema any more
		return "", nil
	}
	return all, err
}

// truncate empties the tables that have files, so that no dead rows stay, starts the sequences anew, and forgets what was counted.
func truncate(db *sql.DB, schema string) error {
	_, err := db.Exec(fmt.Sprintf(`
		DO $$
		DECLARE
			entry record;
			filled text;
		BEGIN
			SET LOCAL lock_timeout = '1min'; -- for a transaction whose client is gone
			SELECT string_agg(format('%%I.%%I', %[2]s, relname), ', ') INTO filled FROM pg_class
			WHERE relnamespace = %[1]s::regnamespace AND relkind = 'r' AND relname <> 'migrations' AND pg_relation_size(oid) > 0;
			EXECUTE 'TRUNCATE ' || filled;
			EXECUTE format('INSERT INTO %%I.fence (epoch) VALUES (0)', %[2]s); -- has one row from the beginning
			FOR entry IN SELECT oid, relkind FROM pg_class WHERE relnamespace = %[1]s::regnamespace LOOP
				IF entry.relkind = 'S' THEN
					PERFORM setval(entry.oid, 1, false);
				ELSE
					PERFORM pg_stat_reset_single_table_counters(entry.oid);
				END IF;
			END LOOP;
		END $$`, pq.QuoteLiteral(pq.QuoteIdentifier(schema)), pq.QuoteLiteral(schema)))
	return err
}
