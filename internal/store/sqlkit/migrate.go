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
	// ErrNewer means that a newer version of the program migrated the store, and that programs like this one can not work with it any more.
	ErrNewer = errors.New("jq: the store's schema is newer than this program can work with: update the program")
	// ErrOlder means that the store needs a migration and was opened without one.
	ErrOlder = errors.New("jq: the store's schema is older than this program: run jobq migrate up")
	// ErrMissing means that the store does not exist, and that it was opened without creating it.
	ErrMissing = errors.New("jq: there is no store: name another, or make one there by jobq migrate up")
)

// SchemaOf describes a store that is migrated to that version, for a program that knows these steps. If the version is newer, least
// is called to read the least compatible version that the newer program has recorded.
func SchemaOf(steps []Migration, version int, least func() (int, error)) (s store.Schema, err error) {
	s = store.Schema{Version: version, Newest: len(steps)}
	switch {
	case version > len(steps):
		s.Least, err = least()
	case version > 0:
		s.Least = steps[version-1].Least
	}
	return s, err
}

// Number returns the answer of a query for one number.
func Number(ctx context.Context, db sqlx.QueryerContext, query string) (n int, err error) {
	err = sqlx.GetContext(ctx, db, &n, query)
	return n, err
}

// Current returns nil if this program can work with the schema: it is the program's own, or a newer one that is compatible.
func Current(s store.Schema) error {
	switch {
	case s.Version == 0:
		return ErrMissing
	case s.Version < s.Newest:
		return fmt.Errorf("%w (schema %d, program %d)", ErrOlder, s.Version, s.Newest)
	case s.Least > s.Newest:
		return fmt.Errorf("%w (schema %d needs %d, program %d)", ErrNewer, s.Version, s.Least, s.Newest)
	}
	return nil
}

// Served returns nil if a running program can go on with the schema.
func Served(s store.Schema) error {
	if err := Current(s); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// A Migration is one numbered step of a schema: the file 0003_name.sql is step 3.
type Migration struct {
	Version int
	Name    string
	SQL     string
	Least   int // programs that know this version of the schema, or a later one, can work with the store after the step
}

var (
	leastOf  = regexp.MustCompile(`(?m)^-- Least compatible version: (\d+)\.`)
	comments = regexp.MustCompile(`--.*`)
	takes    = regexp.MustCompile(`(?i)\b(DROP|RENAME|ALTER COLUMN)\b`)
)

// compatible sets the step's least compatible version. A step is additive, and leaves that of the step before, unless a comment says
// otherwise. A step that takes something away must say so.
func (m *Migration) compatible(before int) error {
	m.Least = before
	said := leastOf.FindStringSubmatch(m.SQL)
	if said == nil {
		if taken := takes.FindString(comments.ReplaceAllString(m.SQL, "")); taken != "" {
			return fmt.Errorf("migration %d (%s) has a %s: write which programs it breaks, as -- Least compatible version: %d",
				m.Version, m.Name, taken, m.Version)
		}
		return nil
	}
	var err error
	if m.Least, err = strconv.Atoi(said[1]); err != nil || m.Least < before || m.Least > m.Version {
		return fmt.Errorf("migration %d (%s): the least compatible version is %s: want one from %d to %d", m.Version, m.Name, said[1], before, m.Version)
	}
	return nil
}

// Migrations reads the steps in the folder migrations. Their files must be numbered from 1 without a gap.
func Migrations(embedded fs.FS) ([]Migration, error) {
	files, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]Migration, len(files)) // Glob sorts by name
	least := 1
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
		if err := steps[i].compatible(least); err != nil {
			return nil, err
		}
		least = steps[i].Least
	}
	return steps, nil
}

var (
	indexes = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (\w+) ON`)
	dropped = regexp.MustCompile(`(?m)^DROP INDEX (?:\{schema\}\.)?(\w+);`)
)

// MissingIndexes finds the indexes that the steps create, that no later step drops, and that are not there. state says where they
// should be and what is wrong: "schema jq is missing".
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

// A Migrator brings one store to the newest schema. Its table of migrations has the columns version, name and least, the least
// compatible version. Programs of before that column have made the table without it; then it is NULL for the steps that they have
// recorded.
type Migrator struct {
	Steps []Migration

	// Begin starts a transaction that can read the table of migrations and keeps other migrators out until it ends.
	Begin func(ctx context.Context) (*sqlx.Tx, error)

	Version  string // a query: the greatest version applied, 0 if none
	Least    string // a query: the least compatible version
	HasLeast string // a query: how many columns are called least
	AddLeast string // a statement that adds the column
	Record   string // a statement of three arguments: version, name and least compatible version

	// Busy returns who may still use the schema of that version. It is asked before a step that breaks programs of earlier versions.
	// If it is nil, such a step is applied whoever uses it.
	Busy func(ctx context.Context, tx *sqlx.Tx, version int) ([]Busy, error)

	Before func(step, of int) // is called before each step is applied; may be nil
}

// Up applies the missing steps and returns how many it applied. A new store gets all of them in one transaction, an older one gets each in its own, because
// a step may take long. Any number of processes may call it at the same time, and again after one was killed. If a step would break programs that still run,
// Up applies none, and the error is a *BusyError.
func (m Migrator) Up(ctx context.Context) (applied int, err error) {
	for {
		some, err := m.some(ctx)
		if err != nil || some == 0 {
			return applied, err
		}
		applied += some
		m.Busy = nil // a program that has begun to work since then must not stop the steps that are left
	}
}

// some applies the next missing step, if any, or all steps of a new store, and returns how many these were.
func (m Migrator) some(ctx context.Context) (applied int, err error) {
	tx, err := m.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	version, err := Number(ctx, tx, m.Version)
	if err != nil {
		return 0, fmt.Errorf("reading the schema's version: %w", err)
	}
	if version >= len(m.Steps) {
		found, err := SchemaOf(m.Steps, version, func() (int, error) { return Number(ctx, tx, m.Least) })
		if err != nil {
			return 0, fmt.Errorf("reading the least compatible version: %w", err)
		}
		return 0, Current(found)
	}
	if err := m.admit(ctx, tx, version); err != nil {
		return 0, err
	}
	if added, err := m.addLeast(ctx, tx); err != nil {
		return 0, fmt.Errorf("preparing the table of migrations: %w", err)
	} else if added {
		// In a transaction of its own: this change locks out readers of the table, such as Ping, and the step may take long.
		if err := tx.Commit(); err != nil {
			return 0, err
		}
		return m.some(ctx)
	}
	next := m.Steps[version : version+1]
	if version == 0 {
		next = m.Steps
	}
	for _, step := range next {
		if err := m.apply(ctx, tx, step); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return len(next), nil
}

func (m Migrator) apply(ctx context.Context, tx *sqlx.Tx, step Migration) error {
	if m.Before != nil {
		m.Before(step.Version, len(m.Steps))
	}
	if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
		return fmt.Errorf("migration %d (%s): %w", step.Version, step.Name, err)
	}
	if _, err := tx.ExecContext(ctx, m.Record, step.Version, step.Name, step.Least); err != nil {
		return fmt.Errorf("recording migration %d: %w", step.Version, err)
	}
	return nil
}

// admit returns a BusyError if some missing step, not only the next, breaks programs that still run: otherwise the steps before it
// would be applied, and programs from before least compatible versions could not be started again.
func (m Migrator) admit(ctx context.Context, tx *sqlx.Tx, version int) error {
	newest := m.Steps[len(m.Steps)-1]
	if m.Busy == nil || version == 0 || newest.Least <= m.Steps[version-1].Least {
		return nil
	}
	busy, err := m.Busy(ctx, tx, version)
	if err != nil {
		return fmt.Errorf("looking for programs of earlier versions: %w", err)
	}
	if len(busy) > 0 {
		return &BusyError{Version: version, Newest: newest.Version, Busy: busy}
	}
	return nil
}

func (m Migrator) addLeast(ctx context.Context, tx *sqlx.Tx) (added bool, err error) {
	if has, err := Number(ctx, tx, m.HasLeast); err != nil || has > 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, m.AddLeast)
	return err == nil, err
}
