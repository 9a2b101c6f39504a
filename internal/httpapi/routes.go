package httpapi

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A handler answers one request, or returns an error.
type handler func(a *API, w *exchange, r *http.Request) error

// A route is one call of the API.
type route struct {
	name   string // its operationId in the OpenAPI document
	method string
	path   string
	roles  []Role // the roles that may call it besides operators; nil if no token is needed
	effect effect
	handle handler
}

// everyRole returns all roles that may call it, or nil if no token is needed.
func (r route) everyRole() []Role {
	if r.roles == nil {
		return nil
	}
	return append(slices.Clip(r.roles), Operator)
}

// onlyReads reports whether the call changes nothing in the store.
func (r route) onlyReads() bool { return r.effect == reads || r.path == pathSession }

// pathRelease is for people: the remote store releases jobs with a NAck.
const pathRelease = "/v1/release"

var (
	anybody   []Role
	producers = []Role{Producer}
	workers   = []Role{Worker}
	operators = []Role{}
	readers   = []Role{Viewer}
	watchers  = []Role{Viewer, Worker}   // may read schedules
	askers    = []Role{Viewer, Producer} // may read a single job, and groups
	everybody = []Role{Viewer, Producer, Worker}
)

// table lists every call.
func table() []route {
	const name = "{name}"
	return []route{
		{"enqueue", http.MethodPost, wire.PathJobs, producers, works, (*API).enqueue},
		{"claim", http.MethodPost, wire.PathClaim, workers, works, (*API).claim},
		{"ack", http.MethodPost, wire.PathAck, workers, works, body((*API).ack)},
		{"nack", http.MethodPost, wire.PathNAck, workers, works, body((*API).nack)},
		{"extend", http.MethodPost, wire.PathExtend, workers, works, body((*API).extend)},
		{"checkpoint", http.MethodPost, wire.PathCheckpoint, workers, works, body((*API).checkpoint)},
		{"release", http.MethodPost, pathRelease, workers, works, body((*API).release)},
		{"recover", http.MethodPost, wire.PathRecover, workers, works, body((*API).recover)},
		{"settle", http.MethodPost, wire.PathSettle, workers, works, body((*API).settle)},
		{"waited-for", http.MethodPost, wire.PathWaited, workers, reads, (*API).waitedFor},

		{"jobs", http.MethodGet, wire.PathJobs, readers, reads, (*API).jobs},
		{"list", http.MethodPost, wire.PathList, readers, reads, (*API).list},
		{"count", http.MethodPost, wire.PathCount, everybody, reads, reading((*API).count)},
		{"job", http.MethodGet, wire.PathJob + "{id}", askers, reads, (*API).job},
		{"graph", http.MethodGet, wire.PathJob + "{id}/graph", askers, reads, (*API).graph},
		{"stats", http.MethodGet, "/v1/stats", everybody, reads, (*API).stats},
		{"activity", http.MethodGet, wire.PathActivity, readers, reads, (*API).activity},
		{"errors", http.MethodGet, "/v1/errors", readers, reads, (*API).failures},
		{"overview", http.MethodGet, "/v1/overview", readers, reads, (*API).overview},

		{"bulk", http.MethodPost, wire.PathBulk, operators, operates, (*API).bulk},
		{"delete", http.MethodDelete, wire.PathJob + "{id}", operators, operates, one(wire.Delete)},
		{"cancel", http.MethodPost, wire.PathJob + "{id}/cancel", operators, operates, one(wire.Cancel)},
		{"requeue", http.MethodPost, wire.PathJob + "{id}/requeue", operators, operates, one(wire.Requeue)},
		{"reschedule", http.MethodPost, wire.PathJob + "{id}/reschedule", operators, operates, one(wire.Reschedule)},

		{"queues", http.MethodGet, wire.PathQueues, readers, reads, (*API).queues},
		{"pause", http.MethodPost, fmt.Sprintf(wire.PathPause, name), operators, operates, paused(true)},
		{"resume", http.MethodPost, fmt.Sprintf(wire.PathResume, name), operators, operates, paused(false)},
		{"policy", http.MethodGet, fmt.Sprintf(wire.PathPolicy, name), readers, reads, (*API).policy},
		{"set-policy", http.MethodPut, fmt.Sprintf(wire.PathPolicy, name), operators, operates, (*API).setPolicy},
		{"due", http.MethodGet, wire.PathDue, readers, reads, (*API).due},
		{"workers", http.MethodGet, wire.PathWorkers, readers, reads, (*API).workers},
		{"beat", http.MethodPut, fmt.Sprintf(wire.PathWorker, name), workers, works, (*API).beat},
		{"leave", http.MethodDelete, fmt.Sprintf(wire.PathWorker, name), workers, operates, forName("worker", store.Registry.Leave)},

		{"schedules", http.MethodGet, wire.PathSchedules, watchers, reads, (*API).schedules},
		{"schedule", http.MethodGet, fmt.Sprintf(wire.PathSchedule, name), watchers, reads, (*API).schedule},
		{"set-schedule", http.MethodPut, fmt.Sprintf(wire.PathSchedule, name), operators, operates, (*API).setSchedule},
		{"delete-schedule", http.MethodDelete, fmt.Sprintf(wire.PathSchedule, name), operators, operates, forName("name", store.ScheduleKeeper.DeleteSchedule)},
		{"pause-schedule", http.MethodPost, fmt.Sprintf(wire.PathSchedule, name) + "/pause", operators, operates, changed(pauseSchedule)},
		{"resume-schedule", http.MethodPost, fmt.Sprintf(wire.PathSchedule, name) + "/resume", operators, operates, changed(resumeSchedule)},
		{"reset-schedule", http.MethodPost, fmt.Sprintf(wire.PathSchedule, name) + "/reset", operators, operates, changed(schedule.Reset)},
		{"run-schedule", http.MethodPost, fmt.Sprintf(wire.PathSchedule, name) + "/run", operators, operates, onSchedule(runSchedule)},
		{"fire", http.MethodPost, wire.PathFire, workers, works, (*API).fire},
		{"preview", http.MethodPost, wire.PathSchedules + "/preview", everybody, reads, reading((*API).preview)},

		{"groups", http.MethodGet, wire.PathGroups, askers, reads, (*API).groups},
		{"group", http.MethodGet, fmt.Sprintf(wire.PathGroup, name), askers, reads, (*API).group},
		{"seal", http.MethodPost, fmt.Sprintf(wire.PathSeal, name), producers, works, forName("", store.GroupKeeper.SealGroup)},

		{"fence", http.MethodPost, wire.PathFence, operators, operates, (*API).fence},

		{"wakeups", http.MethodPost, wire.PathWakeups, workers, reads, (*API).wakeups},
		{"events", http.MethodGet, "/v1/events", readers, reads, (*API).events},

		{"login", http.MethodPost, pathSession, anybody, operates, (*API).login},
		{"session", http.MethodGet, pathSession, everybody, reads, (*API).session},
		{"logout", http.MethodDelete, pathSession, everybody, operates, (*API).logout},

		{"alive", http.MethodGet, "/healthz", anybody, reads, (*API).alive},
		{"ready", http.MethodGet, wire.PathReady, anybody, reads, (*API).ready},
		{"metrics", http.MethodGet, "/metrics", readers, reads, (*API).metrics},
		{"openapi", http.MethodGet, "/openapi.json", anybody, reads, (*API).openapi},
		{"docs", http.MethodGet, "/docs", anybody, reads, (*API).docs},
		{"home", http.MethodGet, "/{$}", anybody, reads, (*API).home},
	}
}

func (a *API) routes(calls []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range calls {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			x := w.(*exchange) // ServeHTTP passes nothing else
			x.to = r
			if a.options.ReadOnly && !r.onlyReads() {
				a.fail(x, req, onlyReads)
				return
			}
			err := a.admit(x, req)
			if r.effect == operates && (err == nil && a.known(x) || x.bearer != nil && statusOf(err) == http.StatusForbidden) {
				a.begin(x, req)
			}
			if err == nil {
				err = r.handle(a, x, x.bearer.with(req))
			}
			if err != nil {
				a.fail(x, req, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { a.fail(w.(*exchange), req, a.stray(w, req)) })
	return mux
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, all: a.all, own: a.all}
	defer x.end()
	defer a.rescue(x, r)
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if escaped := r.URL.EscapedPath(); escaped != clean(escaped) { // the mux would answer with a redirect
		a.fail(x, r, noSuchCall)
		return
	}
	if err := a.checkHost(r); err != nil {
		a.fail(x, r, err)
		return
	}
	if a.options.Home != nil && isPage(r) {
		a.allow(x)
		a.options.Home.ServeHTTP(x, r)
		return
	}
	a.mux.ServeHTTP(x, r)
}

// isPage reports whether Home answers the request.
func isPage(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/ui/"))
}

func clean(escaped string) string {
	if !strings.HasPrefix(escaped, "/") {
		return "/"
	}
	cleaned := path.Clean(escaped)
	if cleaned != "/" && strings.HasSuffix(escaped, "/") {
		cleaned += "/"
	}
	return cleaned
}

// stray returns the problem for a request without a route: no such call, or a wrong method.
func (a *API) stray(w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := a.mux.Handler(&other); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return noSuchCall
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return noSuchMethod
}
