package browser

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// A watch collects what must not happen while a page is open.
type watch struct {
	host   string // the only host that the page may call
	dialog func() // closes a dialog of the page

	mu       sync.Mutex
	faults   []string
	allowed  []answer  // failed requests that the test expects
	requests []request // to the host, in order
}

// An answer is how the server answered requests for a path.
type answer struct {
	status int
	path   string
}

// A request is one that the page has made.
type request struct{ method, path string }

// note is called for each event of the page. It must return at once.
func (w *watch) note(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			w.faults = append(w.faults, fmt.Sprintf("console.%s: %s", e.Type, textOf(e.Args)))
		}
	case *runtime.EventExceptionThrown:
		w.faults = append(w.faults, "uncaught: "+exception(e.ExceptionDetails))
	case *log.EventEntryAdded:
		w.entry(e.Entry)
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			w.faults = append(w.faults, fmt.Sprintf("content security policy: %s (%s)", d.ViolatedDirective, d.BlockedURL))
		}
	case *page.EventJavascriptDialogOpening:
		w.faults = append(w.faults, fmt.Sprintf("%s dialog: %s", e.Type, e.Message))
		go w.dialog() // an open dialog blocks the page
	case *network.EventRequestWillBeSent:
		w.request(e.Request)
	case *network.EventResponseReceived:
		if e.Response.Status >= 500 && !w.expected(int(e.Response.Status), e.Response.URL) {
			w.faults = append(w.faults, fmt.Sprintf("the server answered %d: %s", e.Response.Status, e.Response.URL))
		}
	}
}

// entry handles a line that the browser itself wrote into the console.
func (w *watch) entry(e *log.Entry) {
	if e.Level != log.EntryLevelError && e.Level != log.EntryLevelWarning {
		return
	}
	var status int
	if e.Source == log.EntrySourceNetwork {
		_, _ = fmt.Sscanf(e.Text, "Failed to load resource: the server responded with a status of %d", &status) // else it stays 0
	}
	if status != 0 && w.expected(status, e.URL) {
		return
	}
	w.faults = append(w.faults, fmt.Sprintf("console: %s %s: %s", e.Level, e.URL, e.Text))
}

func (w *watch) request(r *network.Request) {
	at, err := url.Parse(r.URL)
	switch {
	case err != nil:
		w.faults = append(w.faults, fmt.Sprintf("request to %q: %v", r.URL, err))
	case at.Scheme == "data" || at.Scheme == "blob" || r.URL == "about:blank":
	case at.Host != w.host:
		w.faults = append(w.faults, "request to another host: "+r.URL)
	default:
		w.requests = append(w.requests, request{r.Method, at.Path})
	}
}

func (w *watch) expected(status int, address string) bool {
	at, err := url.Parse(address)
	return err == nil && slices.ContainsFunc(w.allowed, func(a answer) bool { return a.status == status && strings.HasPrefix(at.Path, a.path) })
}

// allow says that the page may get this answer for paths that begin so.
func (w *watch) allow(status int, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = append(w.allowed, answer{status, path})
}

// found returns the faults, and forgets them.
func (w *watch) found() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := w.faults
	w.faults = nil
	return faults
}

// made returns the requests for paths that begin so, and forgets all requests.
func (w *watch) made(path string) []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests := w.requests
	w.requests = nil
	return slices.DeleteFunc(requests, func(r request) bool { return !strings.HasPrefix(r.path, path) })
}

func textOf(args []*runtime.RemoteObject) string {
	var text []string
	for _, a := range args {
		if a.Description != "" {
			text = append(text, a.Description)
		} else {
			text = append(text, string(a.Value))
		}
	}
	return strings.Join(text, " ")
}

func exception(d *runtime.ExceptionDetails) string {
	text := d.Text
	if d.Exception != nil {
		text += " " + textOf([]*runtime.RemoteObject{d.Exception})
	}
	return fmt.Sprintf("%s (%s:%d)", text, d.URL, d.LineNumber+1)
}
