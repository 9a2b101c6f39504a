package postgres

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A recorder keeps the texts of statements, without the schema of the store that has sent them.
type recorder struct {
	mu    sync.Mutex // guards what follows
	texts map[string]bool
}

// record keeps the statements with arguments that the store sends from now on. Some of them are not prepared, but planned each time.
func (r *recorder) record(t *testing.T, s *Store) *Store {
	t.Helper()
	spied(t, s, "$1", func(query string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.texts[strings.ReplaceAll(query, s.schema, `{schema}`)] = true
	})
	return s
}

func (r *recorder) all() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.texts)
}

// A comparison compares rows with all of a table or of an index.
type comparison struct{ Statement, Of, By string }

// A planReader finds the comparisons of a statement in its plan.
type planReader struct {
	statement string
	firsts    map[string]string // the first column of each index
	found     *[]comparison
}

// read adds those of a plan: joins, subqueries that the server answers for all rows at once, and searches by a later column of an index. A search that is
// made once for a statement may read an index in its order.
func (r planReader) read(p plan, repeated bool) {
	for _, below := range p.Plans {
		again := repeated || below.Role == "Inner" || below.Role == "SubPlan"
		r.read(below, again)
		first := r.firsts[below.IndexName]
		if again && first != "" && !strings.Contains(below.Index, "("+first+" ") && !strings.Contains(below.Index, "ROW("+first+",") {
			r.add(below.IndexName, "a later column than "+first+": "+below.Index)
		}
		for len(below.Plans) == 1 && (below.Node == "Materialize" || below.Node == "Memoize") {
			below = below.Plans[0]
		}
		switch {
		case below.Relation == "", strings.HasPrefix(below.Relation, "pg_"):
		case below.Role == "SubPlan" && below.Index == "":
			r.add(below.Relation, "a subquery")
		case below.Role != "SubPlan" && below.Role != "InitPlan" && !strings.Contains(below.Index, ".") && p.Joins != "": // an index would name another table
			r.add(below.Relation, p.Joins)
		}
	}
}

func (r planReader) add(of, by string) {
	*r.found = append(*r.found, comparison{strings.Join(strings.Fields(r.statement), " "), of, by})
}

// firstColumns returns the first column of each index of the schema.
func firstColumns(t *testing.T, s *Store) map[string]string {
	t.Helper()
	var indexes []struct{ Name, First string }
	require.NoError(t, s.callers.Select(&indexes, `
		SELECT relname AS name, pg_get_indexdef(indexrelid, 1, true) AS first
		FROM pg_index
		JOIN pg_class ON pg_class.oid = indexrelid
		WHERE relnamespace = $1::regnamespace`,
		pq.QuoteIdentifier(s.options.Schema)))
	firsts := map[string]string{}
	for _, one := range indexes {
		firsts[one.Name] = one.First
	}
	return firsts
}

func TestComparisonsAreFoundInPlans(t *testing.T) {
	const each, all = `((on_id = w.id) AND (job_id = w.job_id))`, `(job_id = w.job_id)`
	scan := func(role, cond string) plan {
		return plan{Node: "Index Scan", Role: role, Relation: "waits", IndexName: "waits_on", Index: cond}
	}
	for name, c := range map[string]struct {
		plan plan
		want []string
	}{
		"by the first column":   {plan{Node: "Nested Loop", Plans: []plan{scan("Outer", ""), scan("Inner", each)}}, nil},
		"by another one":        {plan{Node: "Nested Loop", Plans: []plan{scan("Outer", ""), scan("Inner", all)}}, []string{"waits_on"}},
		"once":                  {plan{Node: "Limit", Plans: []plan{scan("Outer", all)}}, nil},
		"for each row":          {plan{Node: "Result", Plans: []plan{scan("SubPlan", all)}}, []string{"waits_on"}},
		"all rows for each row": {plan{Node: "Nested Loop", Plans: []plan{scan("Outer", ""), {Node: "Limit", Role: "Inner", Plans: []plan{scan("Outer", all)}}}}, []string{"waits_on"}},
		"by a filter": {
			plan{Node: "Nested Loop", Joins: "(w.id = waits.on_id)", Plans: []plan{scan("Outer", all), {Node: "Materialize", Role: "Inner", Plans: []plan{scan("Outer", "")}}}},
			[]string{"waits_on", "waits"},
		},
		"by all rows at once": {plan{Node: "Result", Plans: []plan{{Node: "Seq Scan", Role: "SubPlan", Relation: "waits"}}}, []string{"waits"}},
	} {
		var found []comparison
		planReader{"", map[string]string{"waits_on": "on_id"}, &found}.read(c.plan, false)
		var of []string
		for _, one := range found {
			of = append(of, one.Of)
		}
		assert.ElementsMatch(t, c.want, of, name)
	}
}

// While the server knows of no rows, it might as well compare all rows of two tables, and a prepared statement keeps its plan when the tables have grown.
// So the statements leave it no choice but an index.
func TestNoStatementComparesAllRowsOfATable(t *testing.T) {
	t.Parallel()
	clk := clock.NewMock()
	clk.Set(time.Now())
	r := &recorder{texts: map[string]bool{}}
	useAll(t, r.record(t, openStore(t, Options{})))
	used := r.record(t, openStore(t, Options{Clock: clk}))
	callMuch(t, used, clk)
	texts := r.all()
	for _, text := range []string{takeAcrossQuery, takeFewQuery, lockKeysQuery, writeKeysQuery, orderSomeQuery, disorderSomeQuery, existToTell, checkQuery} {
		require.Contains(t, texts, text, "of the calls")
	}

	s := openStore(t, Options{})
	firsts := firstColumns(t, s)
	require.Equal(t, "on_id", firsts["waits_on"])
	for _, known := range []string{"nothing", "no rows", "few rows"} {
		switch known {
		case "no rows":
			analyzed(t, s)
		case "few rows":
			s = used
			analyzed(t, s)
		}
		var found []comparison
		for text := range texts {
			planReader{text, firsts, &found}.read(planOf(t, s, s.sql(text)), false)
		}
		for _, c := range found {
			t.Errorf("if the server knows of %s, %s is compared by %s, in: %s", known, c.Of, c.By, c.Statement)
		}
	}
}

// planOf is the plan of a prepared statement.
func planOf(t *testing.T, s *Store, text string) plan {
	t.Helper()
	conn, err := s.db.Connx(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), `PREPARE planned AS `+text)
	require.NoError(t, err, text)
	var n int
	require.NoError(t, conn.GetContext(t.Context(), &n, `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'`))
	var answer string
	list := strings.TrimSuffix(strings.Repeat(`NULL,`, n), `,`)
	require.NoError(t, conn.GetContext(t.Context(), &answer, `EXPLAIN (FORMAT JSON) EXECUTE planned (`+list+`)`))
	_, err = conn.ExecContext(t.Context(), `DEALLOCATE planned`)
	require.NoError(t, err)
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(answer), &plans))
	return plans[0].Plan
}

// analyzed lets the server know what the tables have.
func analyzed(t *testing.T, s *Store) {
	t.Helper()
	var tables []string
	require.NoError(t, s.callers.Select(&tables, `SELECT tablename FROM pg_tables WHERE schemaname = $1`, s.options.Schema))
	for _, table := range tables {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`ANALYZE {schema}.`+table))
		require.NoError(t, err)
	}
}

// callMuch makes most kinds of calls.
func callMuch(t *testing.T, s *Store, clk *clock.Mock) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		clk.Add(time.Second)
		doSomethingWithGroups(t.Context(), t, s, random)
	}
	limits := []store.Policy{
		{}, {MaxInFlight: 50}, {MaxPerKey: 5}, {MaxPerKey: 1, Ordered: true}, {Fair: true}, {Ordered: true}, {Rate: store.Rate{N: 100, Per: time.Second}}, {},
	}
	for _, p := range limits {
		limitTo(t, s, p)
		for range 5 {
			enqueueKeyed(t, s, 3, "a", "b", "", "c")
			finish(t, s, claimN(t, s, 2))
			for i, j := range claimN(t, s, 4) {
				nack(t, s, j, []store.Form{store.After, store.Never, store.Release}[i%3], 0)
			}
			claimN(t, s, 2)
			clk.Add(time.Hour)
			_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 100})
			require.NoError(t, err)
			settle(t, s)
		}
	}
	job := member("")
	job.Queue, job.MaxRetries, job.UniqueKey = "crowded", 2*store.MaxAttemptsKept, "u"
	enqueueOne(t, s, job)
	for range store.MaxAttemptsKept + 2 {
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "crowded", Limit: 1, RetryQuota: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		nack(t, s, jobs[0], store.After, 0)
	}
}
