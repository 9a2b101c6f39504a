package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// spares has the schemas of tests that do not create one themselves.
var spares = pgtest.Spares{Create: func(ctx context.Context, dsn, schema string) error {
	s, err := Open(ctx, dsn, &Options{Schema: schema})
	if err != nil {
		return err
	}
	return s.Close()
}}

// openStore opens a store in a schema of its own.
func openStore(t *testing.T, o Options) *Store {
	t.Helper()
	dsn := pgtest.DSN(t)
	switch {
	case o.Schema != "":
	case o.steps != nil: // a program of another version
		o.Schema = pgtest.Schema(t, dsn)
	default:
		o.Schema = spares.Take(t, dsn)
	}
	s, err := Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	s.sweeper.pace(never) // many tests count what a store does
	return s
}

// TestOpenMigratesOnce opens a new schema from eight sides at once.
func TestOpenMigratesOnce(t *testing.T) {
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	stores := make([]*Store, 8)
	errs := make([]error, 8)
	var all sync.WaitGroup
	var told atomic.Int64
	for i := range stores {
		all.Go(func() {
			stores[i], errs[i] = Open(context.Background(), dsn, &Options{Schema: schema, Migrating: func(int, int) { told.Add(1) }})
		})
	}
	all.Wait()
	for i, s := range stores {
		require.NoError(t, errs[i])
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		assert.NoError(t, err)
	}
	var steps int
	require.NoError(t, stores[0].db.Get(&steps, stores[0].sql(`SELECT count(*) FROM {schema}.migrations`)))
	want, err := folder()
	require.NoError(t, err)
	assert.Equal(t, len(want), steps, "migrations recorded")
	assert.EqualValues(t, len(want), told.Load(), "steps that were told of")
	for _, s := range stores {
		assert.NoError(t, s.Close())
	}
}

// TestOpenQuotesTheSchema uses a name that would end the statement if it were not quoted.
func TestOpenQuotesTheSchema(t *testing.T) {
	dsn := pgtest.DSN(t)
	schema := `a"'; DROP TABLE jobs; --`
	s, err := Open(t.Context(), dsn, &Options{Schema: schema})
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	_, err = s.Fence(t.Context(), store.FenceRequest{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, pgtest.Drop(dsn, schema))
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dsn := pgtest.DSN(t)
	config, err := pq.NewConfig(dsn)
	require.NoError(t, err)
	with := func(more string) string {
		if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
			for pair := range strings.FieldsSeq(more) {
				key, value, _ := strings.Cut(pair, "=")
				q := u.Query()
				q.Set(key, value)
				u.RawQuery = q.Encode()
			}
			return u.String()
		}
		return dsn + " " + more
	}
	newer := pgtest.Schema(t, dsn)
	s, err := Open(t.Context(), dsn, &Options{Schema: newer})
	require.NoError(t, err)
	_, err = s.db.Exec(s.sql(`INSERT INTO {schema}.migrations (version, name) VALUES (1000, 'from the future')`))
	require.NoError(t, err)
	require.NoError(t, s.Close())

	for what, k := range map[string]struct {
		dsn, schema, want string
	}{
		"a database that does not exist": {with("dbname=nowhere"), "", "create it first"},
		"a user that does not exist":     {with("user=nobody_at_all"), "", "refuses the user"},
		"a server that does not answer":  {"host=/nowhere user=" + config.User, "", "no such file"},
		"a newer schema":                 {dsn, newer, "newer than this program"},
		"a name that is too long":        {dsn, strings.Repeat("x", 61), "at most 60 bytes"},
		"a DSN that is none":             {"postgres://[", "", "DSN"},
		"ports behind several hosts":     {"postgres://u@one:1,two:2/d", "", "?host=one,two&port=5432,5433"},
		"a setting that there is not":    {with("nonsense=1"), "", "does not know a setting in the DSN, leave it out"},
		"a value that can not be":        {with("work_mem=lots"), "", "invalid value for parameter"},
	} {
		_, err := Open(t.Context(), k.dsn, &Options{Schema: k.schema})
		require.Error(t, err, what)
		assert.Contains(t, err.Error(), k.want, what)
		assert.NotContains(t, err.Error(), "\n", "%s: one line", what)
		assert.Equal(t, what == "a newer schema", errors.Is(err, sqlkit.ErrNewer), what)
		// D29: what lasts until somebody mends it was ErrUnavailable too, on which callers try for ever.
		assert.Equal(t, what == "a server that does not answer", errors.Is(err, store.ErrUnavailable), what)
		assert.Equal(t, what == "a user that does not exist", errors.Is(err, store.ErrDenied), what)
	}
	// A server that trusts everybody asks for no password, so the code is tried by itself.
	err = openError("jq", &pq.Error{Code: codeWrongPassword, Message: "password authentication failed"})
	assert.Contains(t, err.Error(), "refuses the user or the password")
	assert.ErrorIs(t, err, store.ErrDenied)
	for _, err := range []error{pq.ErrSSLNotSupported, &unfit{"the database is encoded in LATIN1"}} {
		assert.NotErrorIs(t, openError("jq", err), store.ErrUnavailable)
	}
}

// D29: a call without the right to it was ErrUnavailable.
func TestCallWithoutARightWasUnavailable(t *testing.T) {
	s := openStore(t, Options{})
	role := strings.NewReplacer(" ", "_", "-", "_").Replace(s.options.Schema)
	_, err := s.db.Exec(`CREATE ROLE "` + role + `"`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := s.db.Exec(`DROP OWNED BY "` + role + `"; DROP ROLE "` + role + `"`)
		assert.NoError(t, err)
	})
	_, err = s.db.Exec(s.sql(`GRANT USAGE ON SCHEMA {schema} TO "` + role + `"; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO "` + role + `"`))
	require.NoError(t, err)
	u := url.Values{"options": {"-c role=" + role}}
	dsn := pgtest.DSN(t)
	if strings.Contains(dsn, "://") {
		dsn += "&" + u.Encode()
	} else {
		dsn += " options='-c role=" + role + "'"
	}
	reader, err := Open(t.Context(), dsn, &Options{Schema: s.options.Schema, NoMigrate: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, reader.Close()) })
	_, err = reader.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	_, err = reader.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.ErrorIs(t, err, store.ErrDenied)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, "the user lacks a right")
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	_, err = reader.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.ErrorIs(t, err, store.ErrDenied)
}

// D23: who opens a store only to look makes and migrates nothing.
func TestNoMigrateOpensWhatIsThere(t *testing.T) {
	dsn := pgtest.DSN(t)
	existing := Options{Schema: pgtest.Schema(t, dsn), NoMigrate: true, Migrating: func(int, int) { t.Error("it was migrated") }}
	_, err := Open(t.Context(), dsn, &existing)
	require.ErrorIs(t, err, sqlkit.ErrMissing)
	assert.NotErrorIs(t, err, store.ErrUnavailable, "it does not pass")
	assert.ErrorContains(t, err, "make one there by jobq migrate up")

	first := openStore(t, Options{Schema: existing.Schema})
	s, err := Open(t.Context(), dsn, &existing)
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	require.NoError(t, s.Close())

	_, err = first.db.Exec(first.sql(`INSERT INTO {schema}.migrations (version, name) VALUES (1000, 'from the future')`))
	require.NoError(t, err)
	_, err = Open(t.Context(), dsn, &existing)
	require.ErrorIs(t, err, sqlkit.ErrNewer)
}

// D23: with an empty DSN the driver goes to a server on this machine, and Open made a schema there.
func TestEmptyDSNOpenedWhateverWasThere(t *testing.T) {
	t.Setenv("PGHOST", t.TempDir()) // in case it is tried all the same
	for _, dsn := range []string{"", " \n"} {
		_, err := Open(t.Context(), dsn, nil)
		require.EqualError(t, err, "jq: the DSN is empty: want postgres://user:password@host/database")
		_, err = SchemaVersion(t.Context(), dsn, nil)
		require.ErrorContains(t, err, "the DSN is empty")
	}
}
