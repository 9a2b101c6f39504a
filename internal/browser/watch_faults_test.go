package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each fault of a page is seen, so that a test without faults has proved something.
func TestFaultsAreSeen(t *testing.T) {
	t.Parallel()
	const policy = "default-src 'none'; script-src 'self'; connect-src *; img-src * data:"
	scripts := map[string]string{ // and a part of what is said about it
		`console.error("no", {a: 1})`:                         "console.error",
		`console.warn("hm")`:                                  "console.warning",
		`undefined.name`:                                      "uncaught",
		`Promise.reject(new Error("nobody cares"))`:           "nobody cares",
		`setTimeout("1 + 1")`:                                 "content security policy: script-src",
		`document.body.innerHTML = "<p style='color:red'>"`:   "content security policy: style-src",
		`document.body.innerHTML = "<img src=x onerror='1'>"`: "content security policy: script-src",
		// Such a name leads to this machine, and needs no server of names. Nothing answers, and the browser says so a moment later.
		`fetch("http://elsewhere.localhost:1234/").catch(() => 0)`: "request to another host: http://elsewhere.localhost:1234/",
		`fetch("/broken")`:  "the server answered 500",
		`fetch("/missing")`: "status of 404",
		`alert("hello")`:    "alert dialog: hello",
		`confirm("sure?")`:  "confirm dialog: sure?",
	}
	for script, want := range scripts {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Security-Policy", policy)
				switch r.URL.Path {
				case "/":
					w.Header().Set("Content-Type", "text/html")
					_, _ = w.Write([]byte(`<!DOCTYPE html><title>t</title><link rel="icon" href="data:,"><body><script src="script.js"></script>`))
				case "/script.js":
					w.Header().Set("Content-Type", "text/javascript")
					_, _ = w.Write([]byte(script))
				case "/broken":
					w.WriteHeader(http.StatusInternalServerError)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			t.Cleanup(server.Close)
			p := open(t, server.URL, desk)
			p.visit("/")
			var found []string
			eventually(t, want, func() (bool, string) {
				found = append(found, p.found()...)
				all := strings.Join(found, "\n")
				later := strings.Contains(script, "elsewhere") && !strings.Contains(all, "Failed to load resource")
				return strings.Contains(all, want) && !later, all
			})
			p.settle()
			p.found()
		})
	}
}

// What a test expects is no fault, and nothing else is.
func TestExpectedAnswersAreNoFaults(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!DOCTYPE html><title>t</title><link rel="icon" href="data:,"><p>here`))
	}))
	t.Cleanup(server.Close)
	p := open(t, server.URL, desk)
	p.visit("/")
	p.allow(http.StatusUnauthorized, "/v1/session")
	eval[int](p, `fetch("/v1/session").then(r => r.status)`)
	p.settle()
	assert.Empty(t, p.found())
	eval[int](p, `fetch("/v1/jobs").then(r => r.status)`)
	eventually(t, "a fault", func() (bool, string) { return len(p.found()) == 1, "" })
	assert.Equal(t, []request{{"GET", "/v1/session"}, {"GET", "/v1/jobs"}}, p.made("/v1/"))
}

// A page that breaks the rules, and is too wide for a phone, is found out. The policy is that of the dashboard.
func TestBadPagesAreFoundOut(t *testing.T) {
	t.Parallel()
	const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; require-trusted-types-for 'script'; trusted-types 'none'"
	const begin = `<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width"><title>t</title><link rel="icon" href="data:,">`
	pages := map[string]string{
		"/good": `<main><h1>Good</h1><label>Name <input></label><button>Do it</button></main>`,
		"/bad":  `<p style="color: #bbb; background: #fff; width: 500px">pale</p><input><button></button><img src="data:,">`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(begin + pages[r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	p := open(t, server.URL, phone)
	p.visit("/good")
	assert.Empty(t, p.violations())
	assert.Empty(t, p.tooWide())
	p.visit("/bad")
	found := strings.Join(p.violations(), "\n")
	for _, rule := range []string{"color-contrast", "label", "button-name", "image-alt"} {
		assert.Contains(t, found, rule)
	}
	require.Len(t, p.tooWide(), 2)
	assert.Contains(t, p.tooWide()[1], "pale")
}
