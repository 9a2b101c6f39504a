package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages are a page and one file.
type pages struct{}

const (
	pagePolicy  = "default-src 'self'"
	pageCaching = "public, max-age=60"
)

func (pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	switch r.URL.Path {
	case "/":
		header.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<title>jobs</title>"))
	case "/ui/page.js":
		header.Set("Content-Type", "text/javascript")
		header.Set("Cache-Control", pageCaching)
		header.Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("'use strict'"))
	default:
		http.NotFound(w, r)
	}
}

// TestHomeIsAnsweredByItsHandler, for anybody, with headers of its own and with ours that protect.
func TestHomeIsAnsweredByItsHandler(t *testing.T) {
	known, _ := tokens(t)
	w := newWorld(t, Options{Tokens: known, Home: pages{}})
	home := w.ask("GET", "/", "")
	assert.Equal(t, []any{200, "<title>jobs</title>", pagePolicy, "", "nosniff"},
		[]any{home.status, home.text, home.header.Get("Content-Security-Policy"), home.header.Get("Cache-Control"), home.header.Get("X-Content-Type-Options")})
	file := w.ask("GET", "/ui/page.js", "")
	assert.Equal(t, []any{200, "'use strict'", pageCaching, "nosniff"},
		[]any{file.status, file.text, file.header.Get("Cache-Control"), file.header.Get("X-Content-Type-Options")})
	assert.Equal(t, 304, w.ask("GET", "/ui/page.js", "", "If-None-Match", `"1"`).status)
	assert.Equal(t, 404, w.ask("GET", "/ui/other.js", "").status)
	head := w.ask("HEAD", "/ui/page.js", "")
	assert.Equal(t, []any{200, ""}, []any{head.status, head.text})
	assert.Equal(t, "no-store", w.ask("GET", "/docs", "").header.Get("Cache-Control"), "of what the API answers itself")
	for _, path := range []string{"/ui", "/ui/", "/ui/a/b", "/ui/../docs", "//ui/page.js"} {
		assert.Equal(t, urn+"no_such_call", w.ask("GET", path, "").fail(t).Type, path)
	}
	for _, path := range []string{"/", "/ui/page.js"} {
		got := w.ask("POST", path, "")
		assert.Equal(t, urn+"no_such_method", got.fail(t).Type)
		assert.Equal(t, "GET, HEAD", got.header.Get("Allow"))
	}
}

// TestWithoutAHomeTheDocsAreHome.
func TestWithoutAHomeTheDocsAreHome(t *testing.T) {
	w := newWorld(t, Options{})
	home := w.ask("GET", "/", "")
	assert.Equal(t, []any{302, "docs"}, []any{home.status, home.header.Get("Location")})
	got := w.ask("GET", "/ui/page.js", "")
	assert.Equal(t, urn+"no_such_call", got.fail(t).Type)
	assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
}

// TestProbesHaveNoHome, whatever the options say.
func TestProbesHaveNoHome(t *testing.T) {
	a, err := NewProbes(&Options{Home: pages{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	for path, status := range map[string]int{"/": 404, "/ui/page.js": 404, "/v1/overview": 404, "/healthz": 200} {
		told := httptest.NewRecorder()
		a.ServeHTTP(told, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		assert.Equal(t, status, told.Code, path)
	}
}
