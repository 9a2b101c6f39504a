package pgtest

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/lib/pq"
)

// Schemas reuses schemas for stores that come and go by the hundred. Creating and dropping the tables takes the server several
// times as long as a usual case, so a schema is emptied and used again.
type Schemas struct {
	db *sql.DB

	mu   sync.Mutex // guards free
	free []string
}

// NewSchemas returns an empty pool. It drops the returned schemas when the test ends.
func NewSchemas(t T, dsn string) *Schemas {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := &Schemas{db: db}
	t.Cleanup(func() {
		if err := s.drop(); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

func (s *Schemas) drop() error {
	var errs []error
	for _, name := range s.free {
		errs = append(errs, drop(s.db, name))
	}
	return errors.Join(append(errs, s.db.Close())...)
}

// Take returns the name of a schema that does not exist or whose tables are empty, for one store.
func (s *Schemas) Take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		name := s.free[n-1]
		s.free = s.free[:n-1]
		return name
	}
	return NewSchema()
}

// Return empties the schema of a closed store for the next one.
func (s *Schemas) Return(name string) error {
	if err := empty(s.db, name); err != nil {
		return fmt.Errorf("emptying the schema %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, name)
	return nil
}

// empty restores the schema to its state after the first opening: empty tables, and the list of migrations. It asks the server
// for the tables, so that none is forgotten, and restarts the sequences.
func empty(db *sql.DB, schema string) error {
	_, err := db.Exec(fmt.Sprintf(`
		DO $$
		DECLARE
			entry record;
		BEGIN
			SET LOCAL lock_timeout = '1min'; -- for a transaction that a case has left open
			FOR entry IN SELECT relname, relkind FROM pg_class WHERE relnamespace = %s::regnamespace LOOP
				IF entry.relkind = 'r' AND entry.relname <> 'migrations' THEN
					EXECUTE format('LOCK TABLE %%I.%%I', %[2]s, entry.relname); -- a lost commit may still be under way
					EXECUTE format('DELETE FROM %%I.%%I', %[2]s, entry.relname);
					IF entry.relname = 'fence' THEN -- has one row from the beginning
						EXECUTE format('INSERT INTO %%I.fence (epoch) VALUES (0)', %[2]s);
					END IF;
				ELSIF entry.relkind = 'S' THEN
					EXECUTE format('ALTER SEQUENCE %%I.%%I RESTART', %[2]s, entry.relname);
				END IF;
			END LOOP;
		END $$`, pq.QuoteLiteral(pq.QuoteIdentifier(schema)), pq.QuoteLiteral(schema)))
	return err
}
