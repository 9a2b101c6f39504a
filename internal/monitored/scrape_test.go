//go:build unix

package monitored

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAlertRules: Prometheus reads the rules, and each fires when it should and not before.
func TestAlertRules(t *testing.T) {
	promtool := prometheus(t, "promtool")
	t.Log(ask(t, promtool, "check", "rules", "../../deploy/alerts.yaml"))
	t.Log(ask(t, promtool, "test", "rules", "../../deploy/alerts_test.yaml"))
}

// A site is a server of jobq, its workers and a Prometheus that scrapes them.
type site struct {
	*testing.T
	jobq    string // the program
	store   string
	token   string
	url     string // of the server
	scraper string // the URL of Prometheus
}

// handler is what the worker runs for each job.
const handler = `#!/bin/sh
case $JQ_KIND in
good) exit 0 ;;
flaky) echo "not now" >&2; exit 1 ;;
bad) echo "never" >&2; exit 65 ;;
*) exec sleep 600 ;;
esac
`

func newSite(t *testing.T) *site {
	scraper := prometheus(t, "prometheus")
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	s := &site{T: t, jobq: in("jobq"), store: "sqlite:" + in("jobs.db")}
	ask(t, "go", "build", "-o", s.jobq, "../../cmd/jobq")
	s.token = ask(t, s.jobq, "token", "new", "tests", "--role", "operator", "--file", in("tokens"))
	server := start(t, s.jobq, "serve", "--store", s.store, "--addr", "127.0.0.1:0", "--tokens", in("tokens"), "--recover-every", "100ms")
	s.url = server.says(`serving on (http://\S+);`)
	require.NoError(t, os.WriteFile(in("handler"), []byte(handler), 0o700))
	worker := start(t, s.jobq, "work", "--store", s.store, "--addr", "127.0.0.1:0", "--queue", "mail=5", "--exec", in("handler"))
	probes := worker.says(`/metrics on (http://\S+)`)

	rules, err := filepath.Abs("../../deploy/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("token"), []byte(s.token), 0o600))
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: jq
    authorization: {credentials_file: %q}
    static_configs:
      - targets: [%q, %q]
`, rules, in("token"), strings.TrimPrefix(s.url, "http://"), strings.TrimPrefix(probes, "http://"))
	require.NoError(t, os.WriteFile(in("prometheus.yml"), []byte(config), 0o600))
	p := start(t, scraper, "--config.file="+in("prometheus.yml"), "--storage.tsdb.path="+in("data"), "--web.listen-address=127.0.0.1:0")
	s.scraper = "http://" + p.says(`msg="Listening on" address=(\S+)`)
	p.says(`(Server is ready to receive web requests)`)
	return s
}

// api makes a call that succeeds.
func (s *site) api(method, path, body string) any {
	s.Helper()
	status, answer := call(s.T, method, s.url+path, s.token, body)
	require.Less(s, status, 300, "%s %s %s: %v", method, path, body, answer)
	return answer
}

func (s *site) enqueue(job string) (id string) {
	s.Helper()
	id, _ = at(s.api("POST", "/v1/jobs", `{"jobs":[`+job+`]}`), "jobs", 0, "id").(string)
	require.NotEmpty(s, id)
	return id
}

// becomes waits for the state of a job.
func (s *site) becomes(id, state string) {
	s.Helper()
	until(s.T, "job "+id+" becomes "+state, func() bool { return at(s.api("GET", "/v1/jobs/"+id, ""), "state") == state })
}

// killWorker lets a worker die with a job, which the server then recovers.
func (s *site) killWorker() {
	s.Helper()
	doomed := start(s.T, s.jobq, "work", "--store", s.store, "--queue", "doomed=1", "--lease", "1s", "--exec", "sleep 600")
	id := s.enqueue(`{"kind":"doomed","queue":"doomed"}`)
	s.becomes(id, "in_flight")
	doomed.kill()
	s.becomes(id, "failed") // and will be tried again
}

// round makes one of everything that the panels count, so that each counter grows between two scrapes.
func (s *site) round() {
	s.Helper()
	for _, kind := range []string{"good", "flaky", "bad"} {
		s.enqueue(`{"kind":"` + kind + `","queue":"mail"}`)
	}
	s.enqueue(`{"kind":"late","queue":"lonely","expires_at":"` + time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano) + `"}`)
	status, _ := call(s.T, "GET", s.url+"/v1/stats", "", "")
	require.Equal(s, 401, status)

	s.enqueue(`{"kind":"twice","queue":"twice","max_retries":0}`)
	claimed := at(s.api("POST", "/v1/claim", `{"queues":["twice"],"worker":"slow","lease":"10ms"}`), "jobs", 0)
	require.NotNil(s, claimed, "the job is there to be claimed")
	id, token := at(claimed, "id").(string), at(claimed, "token").(string)
	s.becomes(id, "failed")
	answer := s.api("POST", "/v1/ack", fmt.Sprintf(`{"jobs":[{"id":%q,"token":%q}]}`, id, token))
	require.Equal(s, "stale", at(answer, "results", 0, "status"), "%v", answer)
}

// query returns the values of an expression now.
func (s *site) query(expression string) (values []float64) {
	s.Helper()
	status, answer := call(s.T, "GET", s.scraper+"/api/v1/query?query="+url.QueryEscape(expression), "", "")
	require.Equal(s, 200, status, "%s: %v", expression, answer)
	series, _ := at(answer, "data", "result").([]any)
	for _, one := range series {
		value, err := strconv.ParseFloat(at(one, "value", 1).(string), 64)
		require.NoError(s, err)
		values = append(values, value)
	}
	return values
}

// healthy lists panels that show 0 while nothing is wrong, and why the run leaves it at that.
var healthy = map[string]string{"Heartbeats that failed": "the store answers all the time"}

// shows says whether a query has data: values that are numbers, and not all 0.
func shows(title string, values []float64) bool {
	if _, fine := healthy[title]; fine {
		return len(values) > 0
	}
	return slices.ContainsFunc(values, func(v float64) bool { return v > 0 && !math.IsInf(v, 0) })
}

// variables stand for any value that Grafana puts into the queries. Each label must be there, so that a choice has an effect.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$instance", ".+", "$queue", ".+")

// TestPanelsShowARealScrape runs jobs that succeed, fail, die, expire, run twice and lose their worker. Then each query of the
// dashboard has data, and the rules are evaluated without an error.
func TestPanelsShowARealScrape(t *testing.T) {
	s := newSite(t)
	s.enqueue(`{"kind":"long","queue":"mail"}`)
	s.enqueue(`{"kind":"waits","queue":"lonely"}`)
	s.killWorker()
	empty := map[string]string{}
	for _, p := range theDashboard(t).Panels {
		for _, target := range p.Targets {
			empty[p.Title+" "+target.RefID] = variables.Replace(target.Expr)
		}
	}
	titles := slices.Sorted(maps.Keys(empty))
	deadline := time.Now().Add(soon)
	for len(empty) > 0 {
		s.round()
		for _, title := range titles {
			if expression, left := empty[title]; left && shows(title[:len(title)-2], s.query(expression)) {
				delete(empty, title)
			}
		}
		if time.Now().After(deadline) {
			break
		}
	}
	assert.Empty(t, empty, "these show nothing")
	s.rules()
}

// rules checks that Prometheus evaluates all rules, and which fire.
func (s *site) rules() {
	s.Helper()
	until(s.T, "the alerts on dead jobs and on stale writes fire, and three others do not", func() bool {
		firing, quiet := 0, 0
		_, answer := call(s.T, "GET", s.scraper+"/api/v1/rules", "", "")
		rules, _ := at(answer, "data", "groups", 0, "rules").([]any)
		require.Len(s, rules, len(alerts(s.T)))
		for _, r := range rules {
			name, health := at(r, "name").(string), at(r, "health")
			require.NotEqual(s, "err", health, "%s: %v", name, at(r, "lastError"))
			if slices.Contains([]string{"JqDeadJobsGrow", "JqStaleWrites"}, name) && at(r, "state") == "firing" {
				firing++
			}
			if slices.Contains([]string{"JqNoMetrics", "JqStoreDown", "JqSlotsAbandoned"}, name) {
				require.NotEqual(s, "firing", at(r, "state"), name)
				if at(r, "state") == "inactive" { // before the first scrape, there are no metrics for a moment
					quiet++
				}
			}
		}
		return firing == 2 && quiet == 3
	})
}
