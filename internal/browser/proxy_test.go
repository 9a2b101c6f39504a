package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// Behind a proxy with a path of its own, every page works: no address is from the root of the host.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	target, err := url.Parse(s.url)
	require.NoError(t, err)
	var mu sync.Mutex
	var outside []string
	mux := http.NewServeMux()
	mux.Handle("/ops/jq/", http.StripPrefix("/ops/jq", &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		FlushInterval: -1, // the events are a stream
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/favicon.ico" {
			outside = append(outside, r.URL.Path)
		}
		http.NotFound(w, r)
	})
	proxy := httptest.NewServer(mux)
	t.Cleanup(proxy.Close)

	p := open(t, proxy.URL+"/ops/jq", desk)
	for _, v := range views(s) {
		p.see(v)
	}
	p.visit("/docs")
	p.shows("/v1/jobs")
	id := s.add("k", `{}`, &jq.EnqueueOptions{Queue: "later"})
	p.visit("/#/jobs?queue=later")
	p.shown("Jobs")
	p.find(button("live*"))
	p.click(button("Cancel…"))
	p.agree("Cancel: 1 job?", "Cancel 1 job")
	s.becomes(id, jq.Cancelled)
	mu.Lock()
	defer mu.Unlock()
	assert.Empty(t, outside, "requests outside of the path of the proxy")
	for _, r := range p.made("") {
		assert.True(t, strings.HasPrefix(r.path, "/ops/jq/"), r.path)
	}
}
