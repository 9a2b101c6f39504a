package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
)

// The reasons why a store can not be opened as it is. Opening it fails again until somebody has done what the text says.
var (
	// ErrNewer means that a newer version of the program wrote the store.
	ErrNewer = errors.New("jq: the store's schema is newer than this program: update the program")
	// ErrOlder means that the store needs a migration and was opened without one.
	ErrOlder = errors.New("jq: the store's schema is older than this program: run jobq migrate up")
	// ErrMissing means that the store does not exist, and that it was opened without creating it.
	ErrMissing = errors.New("jq: there is no store: name another, or make one there by jobq migrate up")
)

// Current returns nil if the schema is the one of this program.
func Current(s store.Schema) error {
	switch {
	case s.Version == 0:
		return ErrMissing
	case s.Version < s.Newest:
		return fmt.Errorf("%w (schema %d, program %d)", ErrOlder, s.Version, s.Newest)
	case s.Version > s.Newest:
		return fmt.Errorf("%w (schema %d, program %d)", ErrNewer, s.Version, s.Newest)
	}
	return nil
}

// Served returns nil if a running program can go on with the schema: its own, or one that a newer program has made.
func Served(s store.Schema) error {
	if err := Current(s); err != nil && !errors.Is(err, ErrNewer) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// A Migration is one numbered step of a schema: the file 0003_name.sql is step 3.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// Migrations reads the steps in the folder migrations. Their files must be numbered from 1 without a gap.
func Migrations(embedded fs.FS) ([]Migration, error) {
	files, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]Migration, len(files)) // Glob sorts by name
	for i, file := range files {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		if version, err := strconv.Atoi(number); err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s: want number %d", file, i+1)
		}
		text, err := fs.ReadFile(embedded, file)
		if err != nil {
			return nil, err
		}
		steps[i] = Migration{Version: i + 1, Name: name, SQL: string(text)}
	}
	return steps, nil
}

var (
	indexes = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (\w+) ON`)
	dropped = regexp.MustCompile(`(?m)^DROP INDEX (?:\{schema\}\.)?(\w+);`)
)

// MissingIndexes finds the indexes that the steps create, that no later step drops, and that are not there. state says where they should be and what is
// wrong: "schema jq is missing".
func MissingIndexes(steps []Migration, there []string, state, advice string) (findings []store.Finding) {
	for i, step := range steps {
		for _, made := range indexes.FindAllStringSubmatch(step.SQL, -1) {
			name := made[1]
			drops := func(later Migration) bool {
				return slices.ContainsFunc(dropped.FindAllStringSubmatch(later.SQL, -1), func(m []string) bool { return m[1] == name })
			}
			if !slices.Contains(there, name) && !slices.ContainsFunc(steps[i+1:], drops) {
				findings = append(findings, store.Finding{
					Name: "missing_index", Detail: fmt.Sprintf("the index %s of %s: calls read whole tables", name, state), Advice: advice,
				})
			}
		}
	}
	return findings
}

// A Migrator brings one store to the newest schema.
type Migrator struct {
	Steps []Migration

	// Begin starts a transaction that can read the table of migrations and keeps other migrators out until it ends.
	Begin func(ctx context.Context) (*sqlx.Tx, error)

	Version string // a query: the greatest version applied, 0 if none
	Record  string // a statement of two arguments: version and name

	Before func(step, of int) // is called before each step is applied; may be nil
}

// Up applies the missing steps, each in its own transaction, and returns how many it applied. Any number of processes may call
// it at the same time.
func (m Migrator) Up(ctx context.Context) (int, error) {
	for applied := 0; ; applied++ {
		more, err := m.step(ctx)
		if err != nil || !more {
			return applied, err
		}
	}
}

// step applies the next missing step, if any.
func (m Migrator) step(ctx context.Context) (more bool, err error) {
	tx, err := m.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	var version int
	if err := tx.GetContext(ctx, &version, m.Version); err != nil {
		return false, fmt.Errorf("reading the schema's version: %w", err)
	}
	if version >= len(m.Steps) {
		return false, Current(store.Schema{Version: version, Newest: len(m.Steps)})
	}
	next := m.Steps[version]
	if m.Before != nil {
		m.Before(next.Version, len(m.Steps))
	}
	if _, err := tx.ExecContext(ctx, next.SQL); err != nil {
		return false, fmt.Errorf("migration %d (%s): %w", next.Version, next.Name, err)
	}
	if _, err := tx.ExecContext(ctx, m.Record, next.Version, next.Name); err != nil {
		return false, fmt.Errorf("recording migration %d: %w", next.Version, err)
	}
	return true, tx.Commit()
}
