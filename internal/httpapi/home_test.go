package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHomeAnswersPages without a token, and nothing else. The API stays as it is.
func TestHomeAnswersPages(t *testing.T) {
	pages := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Cache-Control", "no-cache")
		_, _ = rw.Write([]byte("page " + r.URL.Path))
	}
	w := newWorld(t, Options{Tokens: &Tokens{}, Home: http.HandlerFunc(pages), Hosts: []string{"jq.example"}})
	ask := func(method, target string) *httptest.ResponseRecorder {
		told := httptest.NewRecorder()
		w.api.ServeHTTP(told, httptest.NewRequestWithContext(t.Context(), method, "http://jq.example"+target, nil))
		return told
	}
	for path, want := range map[string]string{"/": "page /", "/ui/app.js": "page /ui/app.js", "/ui/": "page /ui/"} {
		got := ask("GET", path)
		assert.Equal(t, 200, got.Code, path)
		assert.Equal(t, want, got.Body.String(), path)
		assert.Equal(t, "no-cache", got.Header().Get("Cache-Control"), "the handler decides")
		assert.Equal(t, "nosniff", got.Header().Get("X-Content-Type-Options"))
	}
	for path, want := range map[string]int{"/ui": 404, "/ui/../v1/jobs": 404, "/healthz": 200, "/v1/jobs": 401} {
		assert.Equal(t, want, ask("GET", path).Code, path)
	}
	assert.Equal(t, 405, ask("POST", "/").Code)
	assert.Equal(t, 404, ask("POST", "/ui/app.js").Code)
	told := httptest.NewRecorder()
	w.api.ServeHTTP(told, httptest.NewRequestWithContext(t.Context(), "GET", "http://evil.example/", nil))
	assert.NotContains(t, told.Body.String(), "page", "a name of another site that points here")
}
