package browser

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// storeURL returns the DSN as the URL of a store in a schema.
func storeURL(t *testing.T, dsn, schema string) string {
	t.Helper()
	u := &url.URL{Scheme: "postgres", Path: "/"}
	query := url.Values{}
	if strings.Contains(dsn, "://") {
		var err error
		u, err = url.Parse(dsn)
		require.NoError(t, err)
		query = u.Query()
	} else {
		for pair := range strings.FieldsSeq(dsn) { // as package pgtest writes it
			key, value, _ := strings.Cut(pair, "=")
			query.Set(key, value)
		}
	}
	query.Set("schema", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// The pages know stores by the API alone, so one run on another store is enough.
func TestOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s := serve(t, options{store: storeURL(t, dsn, pgtest.Schema(t, dsn))})
	s.many(3, "mail", "welcome")
	s.fail("mail", "no such user: 17", contract.Never)
	p := open(t, s.url, desk)
	for path, heading := range map[string]string{
		"/": "Overview", "/#/jobs": "Jobs", "/#/jobs/1": "Job 1", "/#/queues": "Queues", "/#/queues/mail": "mail", "/#/schedules": "Schedules", "/#/workers": "Workers",
	} {
		p.visit(path)
		p.shown(heading)
		p.accessible()
	}
	p.visit("/#/failures")
	p.shown("Failures")
	p.click(button("Requeue…"))
	p.agree("Requeue: 1 job?", "Requeue 1 job")
	assert.EqualValues(t, 3, s.count(jq.Filter{Queue: "mail", States: []jq.State{jq.Ready}}))
	p.visit("/#/jobs?queue=mail")
	p.shown("Jobs")
	p.find(button("live*"))
	s.many(1, "mail", "digest")
	p.shows("digest")
}
