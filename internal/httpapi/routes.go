package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A handler answers one request, or returns why it can not.
type handler func(a *API, w *exchange, r *http.Request) error

// A route is one call of the API.
type route struct {
	method string
	path   string
	roles  []Role // who may call it, besides an operator, who may do everything; none of them where anybody may
	handle handler
}

// everyRole are the roles of whoever may call it, or none where anybody may.
func (r route) everyRole() []Role {
	if r.roles == nil {
		return nil
	}
	return append(slices.Clip(r.roles), Operator)
}

// pathRelease is for people: a store gives jobs back by a NAck.
const pathRelease = "/v1/release"

var (
	anybody   []Role
	producers = []Role{Producer}
	workers   = []Role{Worker}
	operators = []Role{}
	readers   = []Role{Viewer}
	askers    = []Role{Viewer, Producer} // about one job
	everybody = []Role{Viewer, Producer, Worker}
)

// table has every call.
func table() []route {
	const name = "{name}"
	return []route{
		{http.MethodPost, wire.PathJobs, producers, (*API).enqueue},
		{http.MethodPost, wire.PathClaim, workers, (*API).claim},
		{http.MethodPost, wire.PathAck, workers, body((*API).ack)},
		{http.MethodPost, wire.PathNAck, workers, body((*API).nack)},
		{http.MethodPost, wire.PathExtend, workers, body((*API).extend)},
		{http.MethodPost, wire.PathCheckpoint, workers, body((*API).checkpoint)},
		{http.MethodPost, pathRelease, workers, body((*API).release)},
		{http.MethodPost, wire.PathRecover, workers, body((*API).recover)},

		{http.MethodGet, wire.PathJobs, readers, (*API).jobs},
		{http.MethodPost, wire.PathList, readers, reading((*API).list)},
		{http.MethodPost, wire.PathCount, everybody, reading((*API).count)},
		{http.MethodGet, wire.PathJob + "{id}", askers, (*API).job},
		{http.MethodGet, "/v1/stats", everybody, (*API).stats},

		{http.MethodPost, wire.PathBulk, operators, body((*API).bulk)},
		{http.MethodDelete, wire.PathJob + "{id}", operators, one(wire.Delete)},
		{http.MethodPost, wire.PathJob + "{id}/cancel", operators, one(wire.Cancel)},
		{http.MethodPost, wire.PathJob + "{id}/requeue", operators, one(wire.Requeue)},

		{http.MethodGet, wire.PathQueues, readers, (*API).queues},
		{http.MethodPost, fmt.Sprintf(wire.PathPause, name), operators, paused(true)},
		{http.MethodPost, fmt.Sprintf(wire.PathResume, name), operators, paused(false)},
		{http.MethodGet, fmt.Sprintf(wire.PathPolicy, name), readers, (*API).policy},
		{http.MethodPut, fmt.Sprintf(wire.PathPolicy, name), operators, (*API).setPolicy},
		{http.MethodGet, wire.PathDue, readers, (*API).due},
		{http.MethodGet, wire.PathWorkers, readers, (*API).workers},
		{http.MethodPut, fmt.Sprintf(wire.PathWorker, name), workers, (*API).beat},
		{http.MethodDelete, fmt.Sprintf(wire.PathWorker, name), workers, forName("worker", store.Registry.Leave)},
		{http.MethodPost, wire.PathFence, operators, (*API).fence},

		{http.MethodPost, wire.PathWakeups, workers, (*API).wakeups},
		{http.MethodGet, "/v1/events", readers, (*API).events},

		{http.MethodGet, "/healthz", anybody, (*API).alive},
		{http.MethodGet, wire.PathReady, anybody, (*API).ready},
		{http.MethodGet, "/metrics", readers, (*API).metrics},
		{http.MethodGet, "/openapi.json", anybody, (*API).openapi},
		{http.MethodGet, "/docs", anybody, (*API).docs},
		{http.MethodGet, "/{$}", anybody, (*API).home},
	}
}

func (a *API) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range table() {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			x := w.(*exchange) // ServeHTTP hands over no other
			err := a.admit(x, req, r)
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
	if escaped := r.URL.EscapedPath(); escaped != clean(escaped) { // which the mux would answer by sending the client elsewhere
		a.fail(x, r, noSuchCall)
		return
	}
	if a.options.Loopback && !local(r.Host) {
		a.fail(x, r, noSuchHost)
		return
	}
	a.mux.ServeHTTP(x, r)
}

func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
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

// stray is what to say of a request that fits no route: the path may have others.
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
