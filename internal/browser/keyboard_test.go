package browser

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

const (
	escape = kb.Escape
	enter  = kb.Enter
	tabKey = kb.Tab
)

// back presses Shift and Tab.
func (p *tab) back() {
	p.t.Helper()
	p.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
}

// A focus is the element that has the keyboard.
type focus struct {
	Index   int    `json:"index"` // among the elements that can have it, in the order of the document; -1 if it is none of them
	What    string `json:"what"`
	Visible bool   `json:"visible"` // whether somebody can see that it has it
	Parts   bool   `json:"parts"`   // whether Tab goes through parts of it
}

// stops makes the page number the elements that Tab must reach, and returns what they are.
func (p *tab) stops() []string {
	p.t.Helper()
	return eval[[]string](p, `(() => {
		const can = "a[href], button, input, select, textarea, summary, [tabindex]";
		const shown = e => e.checkVisibility({visibilityProperty: true}) && !e.closest("[inert]");
		window.stops = [...document.querySelectorAll(can)].filter(e => !e.disabled && e.tabIndex >= 0 && shown(e));
		window.nameOf = e => e.tagName + " " + (e.getAttribute("aria-label") ?? e.innerText ?? "").trim() + " " + (e.name ?? "");
		return stops.map(nameOf);
	})()`)
}

// focused returns the element that has the keyboard now.
func (p *tab) focused() focus {
	p.t.Helper()
	return eval[focus](p, `(() => {
		const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
		const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== "none";
		const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth && box.width > 0;
		return {index: stops.indexOf(e), what: nameOf(e), visible: ring && inside, parts: e.type === "datetime-local"};
	})()`)
}

// Tab goes through every link, button and field of every page in the order of the document, and each shows that it has the keyboard.
func TestTabReachesEverything(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	tab := open(t, s.url, desk)
	for _, v := range views(s) {
		t.Run(v.name, func(t *testing.T) {
			p := tab.during(t)
			p.see(v)
			p.press("p") // the page does not change from here on
			p.settle()
			stops := p.stops()
			require.Greater(t, len(stops), 8)
			if len(stops) > 80 {
				stops = stops[:80] // the rows of a table are alike
			}
			for i, what := range stops {
				p.press(tabKey)
				at := p.focused()
				for parts := 0; at.Index == i-1 && at.Parts && parts < 8; parts++ { // the day, the month and so on of a time
					p.press(tabKey)
					at = p.focused()
				}
				require.Equal(t, i, at.Index, "Tab reached %q and not %q", at.What, what)
				assert.True(t, at.Visible, "nobody sees that %q has the keyboard", what)
			}
			p.back()
			assert.Equal(t, len(stops)-2, p.focused().Index, "Shift and Tab go back")
		})
	}
}

// Each element that acts says what it is and does.
func TestEverythingHasAName(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	tab := open(t, s.url, desk)
	for _, v := range views(s) {
		t.Run(v.name, func(t *testing.T) {
			p := tab.during(t)
			p.see(v)
			for _, role := range []string{"button", "link", "textbox", "checkbox", "combobox", "spinbutton"} {
				for _, n := range p.all(element{role: role, name: "*"}) {
					assert.NotEmpty(t, n.name, "a %s has no name: %s", role, p.markup(n))
				}
			}
		})
	}
}

// markup returns the beginning of an element's markup.
func (p *tab) markup(n node) string {
	p.t.Helper()
	var text string
	p.call(func(ctx context.Context) (err error) {
		text, err = p.ask(ctx, n, `function() { return this.outerHTML.slice(0, 200); }`)
		return err
	})
	return text
}

// The first Tab offers to skip the navigation.
func TestSkipLink(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	p := open(t, s.url, desk)
	p.visit("/#/queues")
	p.shown("Queues")
	p.press(tabKey)
	assert.Equal(t, "Skip to the content", eval[string](p, `document.activeElement.textContent`))
	p.press(enter)
	assert.Equal(t, "Queues", eval[string](p, `document.activeElement.textContent`))
	assert.Equal(t, "#/queues", eval[string](p, `location.hash`), "the address still names the page")
}

// The keys that the help lists do what it says.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	tab := open(t, s.url, desk)
	p := tab
	p.visit("/")
	p.shown("Overview")

	p.press("?")
	p.find(element{role: "dialog", name: "Keys"})
	help := eval[[][2]string](p, `[...document.querySelectorAll("dialog dl > div")].map(d => [[...d.querySelectorAll("kbd")].map(k => k.textContent).join(" "), d.querySelector("dd").textContent])`)
	p.press("t") // keys do nothing behind a dialog
	assert.Empty(t, eval[string](p, `document.documentElement.dataset.theme ?? ""`))
	p.press(escape)
	p.gone(element{role: "dialog", name: "Keys"})

	var id string
	for job, err := range s.Jobs(t.Context(), jq.Filter{States: []jq.State{jq.Dead}}) { // of the others, the oldest are deleted soon
		require.NoError(t, err)
		id = strconv.FormatInt(job.ID, 10)
	}

	does := map[string]func(){
		"p": func() {
			p.find(button("paused*"))
			p.press("p")
			p.find(button("live*"))
		},
		"t": func() {
			assert.Equal(t, "dark", eval[string](p, `document.documentElement.dataset.theme`))
			p.press("t")
			assert.Equal(t, "light", eval[string](p, `document.documentElement.dataset.theme`))
		},
		"?": func() {
			p.find(element{role: "dialog", name: "Keys"})
			p.press(escape)
			p.gone(element{role: "dialog", name: "Keys"})
		},
		"/": func() {
			p.shown("Jobs")
			eventually(t, "the field for an id", func() (bool, string) {
				return eval[bool](p, `document.activeElement.name === "id"`), eval[string](p, `document.activeElement.outerHTML`)
			})
			for _, digit := range id {
				p.press(string(digit))
			}
			p.press(enter)
			p.shown("Job " + id)
		},
		"n": func() { p.shown("Enqueue a job") },
	}
	for _, key := range help {
		t.Run(key[0], func(t *testing.T) {
			p = tab.during(t)
			p.visit("/#/workers")
			p.shown("Workers")
			p.find(button("live*"))
			for _, r := range key[0] {
				if r != ' ' {
					p.press(string(r))
				}
			}
			if do, ok := does[key[0]]; ok {
				do()
				return
			}
			p.shown(key[1]) // a page
		})
	}
	var keys []string
	for _, key := range help {
		keys = append(keys, key[0])
	}
	for key := range does {
		assert.Contains(t, keys, key, "the help does not list it")
	}
	assert.Subset(t, keys, []string{"g o", "g j", "g f", "g q", "g s", "g w"})
}

// A dialog takes the keyboard, keeps it, and gives it back.
func TestDialogsByKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	p := open(t, s.url, desk)
	p.visit("/#/queues/mail")
	p.shown("mail")
	opener := button("Pause")
	p.focus(opener)
	p.press(enter)
	p.find(element{role: "dialog", name: "Pause queue mail?"})
	seen := []string{p.active()}
	for range 6 {
		p.press(tabKey)
		seen = append(seen, p.active())
	}
	assert.Contains(t, seen, "Pause")
	assert.Contains(t, seen, "Close")
	for _, name := range seen {
		assert.Contains(t, []string{"Pause", "Close", ""}, name, "the keyboard left the dialog") // "" is the browser's own
	}
	p.press(escape)
	p.gone(element{role: "dialog", name: "*"})
	assert.Equal(t, "Pause", p.active(), "the keyboard is where it was")

	p.press(enter)
	p.find(element{role: "dialog", name: "Pause queue mail?"})
	p.press(enter) // agrees
	p.gone(element{role: "dialog", name: "*"})
	p.find(button("Resume"))
	queues, err := s.Queues(t.Context())
	require.NoError(t, err)
	assert.True(t, queues[0].Paused)
	assert.Equal(t, "Resume", p.active(), "the keyboard is where it was")
}

// focus gives an element the keyboard by Tab alone.
func (p *tab) focus(e element) {
	p.t.Helper()
	want := p.find(e)
	var seen []string
	for range 120 {
		p.press(tabKey)
		var same bool
		p.call(func(ctx context.Context) error {
			at, err := p.ask(ctx, want, `function() { return String(document.activeElement === this); }`)
			same = at == "true"
			return err
		})
		if same {
			return
		}
		seen = append(seen, p.active())
	}
	require.FailNow(p.t, fmt.Sprintf("Tab does not reach %s", e), "%q", slices.Compact(seen))
}

// active returns the text of the element that has the keyboard; nothing for the page itself.
func (p *tab) active() string {
	p.t.Helper()
	return eval[string](p, `document.activeElement === document.body ? "" : document.activeElement.textContent.trim()`)
}
