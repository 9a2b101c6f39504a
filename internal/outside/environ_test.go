package outside

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// scheduled is what a job has that a schedule has enqueued.
func scheduled(name string, at time.Time) *store.Extras {
	return (*store.Extras)(nil).WithScheduled(&store.Scheduled{Name: name, For: at})
}

func TestEnvironmentTellsOfTheJobAndHoldsNoSecret(t *testing.T) {
	run := &jq.Run{Job: jq.Job{ID: 7, Token: 3, Kind: "send mail", Queue: "post", Attempts: 2}}
	own := []string{"JQ_JOB_ID=7", "JQ_LEASE_TOKEN=3", "JQ_KIND=send mail", "JQ_QUEUE=post", "JQ_ATTEMPT=2"}
	for variable, want := range map[string]string{
		"PATH=/bin":                               "PATH=/bin",
		"EMPTY=":                                  "EMPTY=",
		"AT=a@b":                                  "AT=a@b",
		"JQ_STORE=postgres://u:secret@db/x":       "",
		"JQ_TOKEN=secret":                         "",
		"jq_token=secret":                         "",
		"JQ_NEW_KIND_OF_SECRET=secret":            "",
		"JQ_JOB_ID=6":                             "",
		"DATABASE_URL=postgres://u:secret@db/x":   "",
		"PGHOST=db":                               "",
		"PGHOSTADDR=10.0.0.1":                     "",
		"PGPORT=5433":                             "",
		"PGDATABASE=x":                            "",
		"PGUSER=u":                                "",
		"PGPASSWORD=secret":                       "",
		"PgPassword=secret":                       "",
		"PGPASSFILE=/run/secrets/pgpass":          "",
		"PGSERVICE=x":                             "",
		"PGSERVICEFILE=/run/secrets/service":      "",
		"PGSYSCONFDIR=/run/secrets":               "",
		"PGSSLCERT=/run/secrets/client.crt":       "",
		"PGSSLKEY=/run/secrets/client.key":        "",
		"PGSSLPASSWORD=secret":                    "",
		"PGSSLMODE=verify-full":                   "PGSSLMODE=verify-full",
		"PGSSLROOTCERT=/etc/ca.crt":               "PGSSLROOTCERT=/etc/ca.crt",
		"PGTZ=UTC":                                "PGTZ=UTC",
		"PGID=1000":                               "PGID=1000",
		"TRACEPARENT=" + trace:                    "",
		"JQ_SERVER=https://jq.example.com/base":   "JQ_SERVER=https://jq.example.com/base",
		"JQ_SERVER=https://u:secret@example.com/": "JQ_SERVER=https://example.com/",
		"JQ_SERVER=https://secret@example.com":    "JQ_SERVER=https://example.com",
		"JQ_SERVER=u:secret@example.com:80":       "",
		"JQ_SERVER=https://u:sec ret@example.com": "",
		"JQ_SERVER=secret@example.com":            "",
		"JQ_SERVER=":                              "JQ_SERVER=",
	} {
		var expected []string
		if want != "" {
			expected = append(expected, want)
		}
		assert.Equal(t, append(expected, own...), environment([]string{variable}, run), variable)
	}
	run.Extras = scheduled("nightly/äß", time.Date(2026, 1, 2, 3, 0, 0, 0, time.FixedZone("", 3600)))
	assert.Equal(t, append(own, "JQ_SCHEDULE=nightly/äß", "JQ_SCHEDULED_FOR=2026-01-02T02:00:00Z"), environment(nil, run))
	run.Trace, run.Extras = trace, nil
	assert.Equal(t, append(own, "TRACEPARENT="+trace), environment(nil, run))
}
