package browser

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// need fails the test if this run must have what is missing, and otherwise skips it.
func need(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("JQ_BROWSER") == "required" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// The browser of all tests. Each page has a context of its own in it, with its own cookies and storage.
var browser chromium

type chromium struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel []context.CancelFunc
}

// start returns the context of the browser, and starts the browser if no test has done so yet.
func (c *chromium) start(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("JQ_CHROMIUM"), "chromium"))
	if err != nil {
		need(t, "Chromium is not installed: install it (Debian: chromium), or set JQ_CHROMIUM to its path")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		return c.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.WindowSize(1440, 900),
		// No test depends on a name, so nothing can reach another machine unseen.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("no-sandbox", os.Getuid() == 0), // Chromium refuses to run as root with its sandbox
		chromedp.Env("LANG=en_US.UTF-8", "TZ=UTC"),
	)
	// The browser outlives the test that starts it, so its context is not that of the test.
	alloc, endAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(alloc)
	c.cancel = []context.CancelFunc{end, endAlloc}
	require.NoError(t, chromedp.Do(ctx), "starting %s", path)
	c.ctx = ctx
	return ctx
}

// end ends the browser and waits until it is gone.
func (c *chromium) end() {
	for _, cancel := range c.cancel {
		cancel()
	}
}
