package outside

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq"
)

// environment returns the environment of the program: the inherited variables without secrets, and variables about the job.
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
	if s := run.Scheduled(); s != nil {
		env = append(env, "JQ_SCHEDULE="+s.Name, "JQ_SCHEDULED_FOR="+moment(s.For))
	}
	if run.Trace != "" {
		env = append(env, "TRACEPARENT="+run.Trace)
	}
	return env
}

// moment returns the time of a schedule as programs and web servers get it.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// opensStore has the variables, besides jq's own, that name the store's database or give access to it. They are those of libpq,
// although the driver rejects some of them today. Variables that set requirements for a connection, such as PGSSLMODE, are not
// among them: without them, the program's own connections would be less safe.
var opensStore = map[string]bool{
	"DATABASE_URL": true,
	"PGHOST":       true, "PGHOSTADDR": true, "PGPORT": true, "PGDATABASE": true,
	"PGUSER": true, "PGPASSWORD": true, "PGPASSFILE": true,
	"PGSERVICE": true, "PGSERVICEFILE": true, "PGSYSCONFDIR": true, // a service file may have a password
	"PGSSLCERT": true, "PGSSLKEY": true, "PGSSLPASSWORD": true,
}

// withoutSecrets returns the variable as the program may see it, or false if the program must not see it. It removes all
// settings of jq, so that nobody has to remember this place when a new setting has a secret. Only the address of the server
// stays, without user and password, because a program may enqueue more jobs. Names are compared without regard to case, because
// Windows does so too.
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
	case name == "TRACEPARENT", name == "TRACESTATE": // this is the trace of whoever started the worker, not of the job
		return "", false
	}
	return variable, true
}

// withoutUser returns the address without user and password, or false if it can not find them for certain.
func withoutUser(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	u.User = nil
	plain := u.String()
	return plain, !strings.Contains(plain, "@")
}
