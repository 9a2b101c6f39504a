package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// SchemaVersion returns the version of the schema. It changes nothing.
func SchemaVersion(ctx context.Context, dsn string, options *Options) (store.Schema, error) {
	s, err := unprepared(dsn, options)
	if err != nil {
		return store.Schema{}, err
	}
	defer s.disconnect()
	found, err := s.schemaVersion(ctx)
	if err != nil {
		err = openError(s.options.Schema, err)
	}
	return found, err
}

// schemaVersion changes nothing. Other programs have tables of migrations too; a store's are recognized by the names of its
// steps.
func (s *Store) schemaVersion(ctx context.Context) (store.Schema, error) {
	var columns, version int
	if err := s.db.GetContext(ctx, &columns, `
		SELECT count(*)
		FROM pg_attribute JOIN pg_class t ON t.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname = $1 AND relname = 'migrations' AND attname IN ('version', 'name')`,
		s.options.Schema); err != nil || columns < 2 {
		return store.Schema{Newest: len(s.steps)}, err
	}
	err := s.db.GetContext(ctx, &version, s.sql(`
		SELECT coalesce(max(version), 0)
		FROM {schema}.migrations
		WHERE EXISTS (SELECT 1 FROM {schema}.migrations WHERE version = 1 AND name = $1)`),
		s.steps[0].Name)
	if err != nil {
		return store.Schema{}, err
	}
	return sqlkit.SchemaOf(s.steps, version, func() (int, error) { return sqlkit.Number(ctx, s.db, s.sql(leastQuery)) })
}

// alarming holds the thresholds for findings.
type alarming struct {
	snapshot    time.Duration // how long a transaction has held back vacuum
	dead        int64         // how many rows of a table are dead, if these are more than the live ones
	connections float64       // the share of all connections that is taken
	behind      int64         // how many bytes of the log a standby lacks, or has to replay
}

// Examine looks for what slows claims down or endangers jobs: indexes, vacuum, durability, connections.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	return s.examine(ctx, alarming{snapshot: 5 * time.Minute, dead: 100_000, connections: 0.9, behind: 256 << 20})
}

// Warnings is part of store.Warner.
func (s *Store) Warnings(ctx context.Context) ([]store.Finding, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	found, err := s.lookAtServer(ctx, alarming{})
	return found, sqlkit.Because(ctx, s.closed, ours(err))
}

func (s *Store) examine(ctx context.Context, a alarming) ([]store.Finding, error) {
	var all []store.Finding
	for _, look := range []func(context.Context, alarming) ([]store.Finding, error){
		s.lookAtIndexes, s.lookAtSnapshots, s.lookAtDeadRows, s.lookAtSettings, s.lookAtStandbys, s.lookAtConnections, s.lookAtServer,
		s.lookAtClock,
	} {
		found, err := look(ctx, a)
		if err != nil {
			return nil, sqlkit.Because(ctx, s.closed, ours(err))
		}
		all = append(all, found...)
	}
	return all, nil
}

func (s *Store) lookAtIndexes(ctx context.Context, _ alarming) ([]store.Finding, error) {
	var valid []string
	if err := s.db.SelectContext(ctx, &valid, `
		SELECT class.relname
		FROM pg_index AS index
		JOIN pg_class AS class ON class.oid = index.indexrelid
		JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
		WHERE namespace.nspname = $1 AND index.indisvalid`,
		s.options.Schema); err != nil {
		return nil, err
	}
	return sqlkit.MissingIndexes(s.steps, valid, "schema "+s.options.Schema+" is missing or invalid",
		"create it again as the migrations do, by CREATE INDEX CONCURRENTLY"), nil
}

func (s *Store) lookAtSnapshots(ctx context.Context, a alarming) ([]store.Finding, error) {
	var held []struct {
		PID  int
		Name string
		Age  float64
	}
	if err := s.db.SelectContext(ctx, &held, `
		SELECT pid, application_name AS name, extract(epoch FROM clock_timestamp() - xact_start) AS age
		FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND backend_type = 'client backend'
			AND xact_start <= clock_timestamp() - $1::bigint * interval '1 microsecond'
		ORDER BY xact_start
		LIMIT 1`,
		a.snapshot.Microseconds()); err != nil || len(held) == 0 {
		return nil, err
	}
	oldest := held[0]
	age := time.Duration(oldest.Age * float64(time.Second)).Round(time.Second)
	return []store.Finding{{
		Name: "held_snapshot",
		Detail: fmt.Sprintf("a transaction of process %d (%s) has been open for %v and holds back vacuum: dead rows stay, and tables grow",
			oldest.PID, oldest.Name, age),
		Advice: fmt.Sprintf("end it, by SELECT pg_terminate_backend(%d) if need be", oldest.PID),
	}}, nil
}

func (s *Store) lookAtDeadRows(ctx context.Context, a alarming) ([]store.Finding, error) {
	var tables []struct {
		Name       string
		Live, Dead int64
	}
	if err := s.db.SelectContext(ctx, &tables, `
		SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead
		FROM pg_stat_user_tables
		WHERE schemaname = $1 AND n_dead_tup > $2::bigint AND n_dead_tup > n_live_tup
		ORDER BY relname`,
		s.options.Schema, a.dead); err != nil {
		return nil, err
	}
	var findings []store.Finding
	for _, table := range tables {
		findings = append(findings, store.Finding{
			Name:   "dead_rows",
			Detail: fmt.Sprintf("the table %s has %d dead rows beside %d live ones: vacuum does not keep up", table.Name, table.Dead, table.Live),
			Advice: fmt.Sprintf("run VACUUM %s.%s, and make sure that autovacuum is on and nothing holds it back", s.schema, pq.QuoteIdentifier(table.Name)),
		})
	}
	return findings, nil
}

func (s *Store) lookAtSettings(ctx context.Context, _ alarming) ([]store.Finding, error) {
	var off []string
	if err := s.db.SelectContext(ctx, &off, `
		SELECT name
		FROM pg_settings
		WHERE name IN ('autovacuum', 'fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
		ORDER BY name`); err != nil || len(off) == 0 {
		return nil, err
	}
	return []store.Finding{{
		Name:   "unsafe_setting",
		Detail: "these server settings are off: " + strings.Join(off, ", "),
		Advice: unsafeAdvice(off),
	}}, nil
}

// unsafeAdvice says what to do about the settings that are off.
func unsafeAdvice(off []string) string {
	const slow = "turn on autovacuum, or claims slow down"
	const lost = "turn them on, or jobs that were answered are lost when the server or its power fails"
	switch {
	case !slices.Contains(off, "autovacuum"):
		return lost
	case len(off) == 1:
		return slow
	}
	return slow + "; turn on the others, or jobs that were answered are lost when the server or its power fails"
}

func (s *Store) lookAtConnections(ctx context.Context, a alarming) ([]store.Finding, error) {
	var used struct{ Taken, Most int }
	if err := s.db.GetContext(ctx, &used, `
		SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS taken,
			current_setting('max_connections')::integer AS most`); err != nil || float64(used.Taken) < a.connections*float64(used.Most) {
		return nil, err
	}
	return []store.Finding{{
		Name:   "few_connections",
		Detail: fmt.Sprintf("%d of the server's %d connections are taken", used.Taken, used.Most),
		Advice: "give each process fewer (max_conns), connect through a pooler, or raise max_connections",
	}}, nil
}

// lookAtServer reports for a day that the data came from another server.
func (s *Store) lookAtServer(ctx context.Context, _ alarming) ([]store.Finding, error) {
	var adopted []struct {
		Epoch  int64
		At     time.Time
		Before string
	}
	if err := s.db.SelectContext(ctx, &adopted, s.sql(`
		SELECT epoch, adopted_at AS at, adopted_from AS before
		FROM {schema}.fence
		WHERE adopted_at > clock_timestamp() - interval '1 day'`)); err != nil || len(adopted) == 0 {
		return nil, err
	}
	found := adopted[0]
	return []store.Finding{{
		Name: "another_server",
		Detail: fmt.Sprintf("since %s the data have been on another server (system and timeline before: %s). The epoch was raised to %d, "+
			"so that no lease is given twice", found.At.UTC().Format(time.RFC3339), found.Before, found.Epoch),
		Advice: "after a failover or a restore, check whether changes were lost, and make sure that the old server stays down",
	}}, nil
}
