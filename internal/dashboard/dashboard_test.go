package dashboard

import (
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func ask(t *testing.T, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := Handler()
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestEachFileIsServed under its own type, with the policy, and only once to a browser that has it.
func TestEachFileIsServed(t *testing.T) {
	files, err := load()
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	for name, f := range files {
		target := "/ui" + name
		if name == "/index.html" {
			target = "/"
		}
		got := ask(t, target)
		assert.Equal(t, http.StatusOK, got.Code, name)
		assert.Equal(t, string(f.text), got.Body.String(), name)
		assert.Equal(t, kinds[path.Ext(name)], got.Header().Get("Content-Type"), name)
		assert.NotEmpty(t, got.Header().Get("Content-Type"), name)
		assert.Equal(t, policy, got.Header().Get("Content-Security-Policy"), name)
		again := ask(t, target, "If-None-Match", got.Header().Get("ETag"))
		assert.Equal(t, http.StatusNotModified, again.Code, name)
	}
	for _, target := range []string{"/ui/", "/ui/none.js", "/ui", "/other", "/ui/../dashboard.go"} {
		assert.Equal(t, http.StatusNotFound, ask(t, target).Code, target)
	}
}

var (
	imported  = regexp.MustCompile(`(?:from|import) "\./([^"]+)"`)
	relative  = regexp.MustCompile(`(?:src|href)="([^"#]+)"`)
	elsewhere = regexp.MustCompile(`(?i)\b(?:https?:)?//[a-z0-9-]+\.[a-z]`)
)

// TestFilesNeedNothingElse: each file that one names is there, and nothing comes from another host.
func TestFilesNeedNothingElse(t *testing.T) {
	files, err := load()
	require.NoError(t, err)
	for name, f := range files {
		text := string(f.text)
		for _, found := range imported.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, files, "/"+found[1], "%s imports it", name)
		}
		if name == "/index.html" {
			for _, found := range relative.FindAllStringSubmatch(text, -1) {
				if file, ok := strings.CutPrefix(found[1], "ui/"); ok {
					assert.Contains(t, files, "/"+file, "the page names it")
				} else {
					assert.Equal(t, "docs", found[1], "an address must be relative, for a proxy with a path")
				}
			}
		}
		assert.NotRegexp(t, elsewhere, strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "the name of a format"), name)
	}
}

// TestNothingTurnsTextIntoMarkup: what comes from jobs becomes text nodes, and the policy needs no exception.
func TestNothingTurnsTextIntoMarkup(t *testing.T) {
	files, err := load()
	require.NoError(t, err)
	for name, f := range files {
		for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc", `.style"`, "style="} {
			assert.NotContains(t, string(f.text), way, name)
		}
		if path.Ext(name) == ".html" {
			assert.NotRegexp(t, `(?i)<script(?:>| [^>]*>)\s*[^<\s]|\son[a-z]+=`, string(f.text), "a script or a listener in the page")
		}
	}
}

// TestEveryPhaseIsKnown: each has a name, a filter and colours, and each action is offered in the phases from which it is possible.
func TestEveryPhaseIsKnown(t *testing.T) {
	files, err := load()
	require.NoError(t, err)
	quoted := regexp.MustCompile(`"([a-z_]+)"`)
	listed := func(file string, after ...string) (states []store.State) {
		rest := string(files[file].text)
		for _, word := range after {
			var found bool
			_, rest, found = strings.Cut(rest, word)
			require.True(t, found, "%s has %q", file, word)
		}
		list, _, _ := strings.Cut(rest, "]")
		for _, m := range quoted.FindAllStringSubmatch(list, -1) {
			states = append(states, store.State(m[1]))
		}
		return states
	}
	assert.ElementsMatch(t, store.Phases, listed("/format.js", "export const states = ["))
	for _, phase := range store.Phases {
		assert.Contains(t, string(files["/format.js"].text), "\n  "+string(phase)+": \"", "it has a name")
		if phase != store.Cancelled { // the colours of every badge
			assert.Contains(t, string(files["/style.css"].text), "\n.is-"+string(phase)+" {", "it has colours")
		}
	}
	for _, row := range store.Transitions {
		if row.Op == store.OpCancel || row.Op == store.OpRequeue || row.Op == store.OpReschedule || row.Op == store.OpDelete {
			assert.ElementsMatch(t, row.From, listed("/actions.js", "\n  "+string(row.Op)+": {", "from: ["), row.Op)
		}
	}
}
