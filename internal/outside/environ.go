package outside

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq"
)

// environment is what the program gets to know of its job, beside what it inherits.
func environment(inherited []string, run *jq.Run) []string {
	var env []string
	for _, variable := range inherited {
		if kept, ok := withoutSecrets(variable); ok {
			env = append(env, kept)
		}
	}
	env = append(env,
		"JQ_JOB_ID="+strconv.FormatInt(run.ID, 10),
		"JQ_LEASE_TOKEN="+strconv.FormatInt(run.Token, 10),
		"JQ_KIND="+run.Kind,
		"JQ_QUEUE="+run.Queue,
		"JQ_ATTEMPT="+strconv.Itoa(run.Attempts),
	)
	if run.Trace != "" {
		env = append(env, "TRACEPARENT="+run.Trace)
	}
	return env
}

// opensStore are the variables, besides jq's own, that lead to the database of the store or give access to it: those of libpq, some
// of which the driver refuses today. What a connection has to fulfil, as PGSSLMODE, stays: without it a program's own connections
// would be less safe.
var opensStore = map[string]bool{
	"DATABASE_URL": true,
	"PGHOST":       true, "PGHOSTADDR": true, "PGPORT": true, "PGDATABASE": true,
	"PGUSER": true, "PGPASSWORD": true, "PGPASSFILE": true,
	"PGSERVICE": true, "PGSERVICEFILE": true, "PGSYSCONFDIR": true, // whose file may hold a password
	"PGSSLCERT": true, "PGSSLKEY": true, "PGSSLPASSWORD": true,
}

// withoutSecrets is the variable as a program may see it, if it may. All of jq's own settings are kept back, so that a new one
// with a secret in it does not have to be thought of here; but the address of the server is of use to who enqueues more jobs.
// Whoever reads names of variables without regard to case, as Windows does, finds no more.
func withoutSecrets(variable string) (string, bool) {
	name, value, _ := strings.Cut(variable, "=")
	switch name = strings.ToUpper(name); {
	case name == "JQ_SERVER":
		address, ok := withoutUser(value)
		return "JQ_SERVER=" + address, ok
	case strings.HasPrefix(name, "JQ_"):
		return "", false
	case opensStore[name]:
		return "", false
	case name == "TRACEPARENT", name == "TRACESTATE": // of whoever started the worker, not of who enqueued the job
		return "", false
	}
	return variable, true
}

// withoutUser is the address without a user and a password, and false if they can not be told from the rest.
func withoutUser(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	u.User = nil
	plain := u.String()
	return plain, !strings.Contains(plain, "@")
}
