package browser

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for something that a page must show.
const patience = 20 * time.Second

// A tab is an open page, in a browser context of its own.
type tab struct {
	*watch
	t    *testing.T
	ctx  context.Context
	base string // where the server is, without a slash at the end
	look look
}

// A look is how a page is shown.
type look struct {
	dark   bool
	width  int64
	height int64
}

var (
	desk  = look{width: 1440, height: 900}
	night = look{dark: true, width: 1440, height: 900}
	phone = look{width: 390, height: 844}
	bed   = look{dark: true, width: 390, height: 844}
)

func (l look) String() string {
	if l.dark {
		return fmt.Sprintf("dark-%d", l.width)
	}
	return fmt.Sprintf("light-%d", l.width)
}

// open opens an empty tab for the server at the URL. When the test ends, each fault that the watch has seen fails it.
func open(t *testing.T, base string, l look) *tab {
	t.Helper()
	at, err := url.Parse(base)
	require.NoError(t, err)
	p := &tab{t: t, base: base, watch: &watch{host: at.Host}}
	ctx, end := chromedp.NewContext(browser.start(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.note))
	p.ctx = ctx
	p.dialog = func() {
		_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}) // the page may be gone
	}
	t.Cleanup(func() {
		p.clean()
		end()
	})
	require.NoError(t, chromedp.Do(ctx))
	p.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
		return err
	})
	p.show(l)
	return p
}

// clean fails the test for each fault that the watch has seen since it was asked last.
func (p *tab) clean() {
	p.t.Helper()
	p.settle()
	times := map[string]int{}
	for _, fault := range p.found() {
		times[fault]++
	}
	for fault, n := range times {
		p.t.Errorf("the page did what no page may do, %d times: %s", n, fault)
	}
}

// during returns the same page for a part of the test, which reports the faults that it makes.
func (p *tab) during(t *testing.T) *tab {
	t.Helper()
	part := &tab{watch: p.watch, t: t, ctx: p.ctx, base: p.base, look: p.look}
	t.Cleanup(part.clean)
	return part
}

// show changes the size and the colours of the page.
func (p *tab) show(l look) {
	p.t.Helper()
	p.look = l
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	p.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	})
	p.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600,
			ScreenWidth: l.width, ScreenHeight: l.height, // else fits takes a headless browser's screen, of 800 pixels, for the window
		})
		return err
	})
}

// call makes one call of the browser, which must succeed in time.
func (p *tab) call(f func(ctx context.Context) error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, f(ctx))
}

// do runs actions.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	p.call(func(ctx context.Context) error { return chromedp.Do(ctx, actions...) })
}

// visit loads a path of the server, such as /#/jobs. It loads the page anew, even if only the part behind the # differs.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.base+path))
}

// settle gives the browser time to report what the page has done: events come in order, so they are before this answer.
func (p *tab) settle() {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, _ = chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise(done => setTimeout(() => done(true), 0))`, chromedp.EvalAwaitPromise)) // the page may be gone
}

// eval returns the value of a JavaScript expression. It waits for a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	var value T
	p.call(func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		return err
	})
	return value
}

// eventually asks until ok, and fails the test with what it was told last if that takes too long.
func eventually(t *testing.T, what string, ask func() (ok bool, now string)) {
	t.Helper()
	eventuallyIn(t, patience, what, ask)
}

func eventuallyIn(t *testing.T, limit time.Duration, what string, ask func() (ok bool, now string)) {
	t.Helper()
	late := time.After(limit)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		ok, now := ask()
		if ok {
			return
		}
		select {
		case <-late:
			require.FailNow(t, "waited in vain for "+what, now)
		case <-again.C:
		}
	}
}

// quoted returns the text as a literal of JavaScript.
func quoted(text string) string { return fmt.Sprintf("%q", text) }

// text returns the visible text of the page.
func (p *tab) text() string {
	p.t.Helper()
	return eval[string](p, `document.body.innerText`)
}
