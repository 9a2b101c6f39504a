package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// An element is what assistive technology knows: a role and a name. A name that ends in * is the beginning of a name.
type element struct {
	role, name string
	in         string // a CSS selector of the part of the page where it is; empty means anywhere
}

func button(name string) element   { return element{role: "button", name: name} }
func link(name string) element     { return element{role: "link", name: name} }
func textbox(name string) element  { return element{role: "textbox", name: name} }
func checkbox(name string) element { return element{role: "checkbox", name: name} }

// of returns the element within a part of the page.
func (e element) of(selector string) element {
	e.in = selector
	return e
}

func (e element) String() string {
	if e.in != "" {
		return fmt.Sprintf("%s %q in %s", e.role, e.name, e.in)
	}
	return fmt.Sprintf("%s %q", e.role, e.name)
}

func (e element) matches(name string) bool {
	if beginning, ok := strings.CutSuffix(e.name, "*"); ok {
		return strings.HasPrefix(name, beginning)
	}
	return name == e.name
}

// A node is an element that the page has now.
type node struct {
	id         cdp.BackendNodeID
	role, name string
}

// all returns the elements of the page now that match. What is hidden, or behind a modal dialog, does not count.
func (p *tab) all(e element) []node {
	p.t.Helper()
	var found []node
	p.call(func(ctx context.Context) error {
		root := "document"
		if e.in != "" {
			root = "document.querySelector(" + quoted(e.in) + ")"
		}
		at, err := chromedp.Call(ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: root})
		if err != nil || at.Result.ObjectID == "" { // there is no such part now
			return err
		}
		nodes, err := chromedp.Call(ctx, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{ObjectID: at.Result.ObjectID, Role: e.role})
		if err != nil {
			return err
		}
		for _, n := range nodes.Nodes {
			if !n.Ignored && n.BackendDOMNodeID != 0 && e.matches(axText(n.Name)) {
				found = append(found, node{n.BackendDOMNodeID, axText(n.Role), axText(n.Name)})
			}
		}
		return nil
	})
	return found
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	_ = json.Unmarshal(v.Value, &text) // other values have no text
	return text
}

// names returns the names of all elements with a role.
func (p *tab) names(role string) []string {
	p.t.Helper()
	var names []string
	for _, n := range p.all(element{role: role, name: "*"}) {
		names = append(names, n.name)
	}
	return names
}

// has reports whether the page has such an element now.
func (p *tab) has(e element) bool {
	p.t.Helper()
	return len(p.all(e)) > 0
}

// find waits until the page has one such element, and fails if it has several.
func (p *tab) find(e element) node {
	p.t.Helper()
	var found []node
	eventually(p.t, e.String(), func() (bool, string) {
		found = p.all(e)
		return len(found) > 0, fmt.Sprintf("of this role the page has %q, and it shows:\n%s", p.names(e.role), p.text())
	})
	require.Len(p.t, found, 1, "%s must be one", e)
	return found[0]
}

// gone waits until the page has no such element.
func (p *tab) gone(e element) {
	p.t.Helper()
	eventually(p.t, "the end of "+e.String(), func() (bool, string) { return !p.has(e), p.text() })
}

// shows waits until the page shows the text.
func (p *tab) shows(text string) {
	p.t.Helper()
	eventually(p.t, "the text "+quoted(text), func() (bool, string) {
		now := p.text()
		return strings.Contains(now, text), "the page shows:\n" + now
	})
}

// click clicks the middle of the element as a mouse does. If something else is there, it waits until that is gone.
func (p *tab) click(e element) {
	p.t.Helper()
	var x, y float64
	eventually(p.t, "a free way to "+e.String(), func() (bool, string) {
		n := p.find(e)
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		var err error
		x, y, err = p.place(ctx, n)
		return err == nil, fmt.Sprint(err) // the page may have drawn the element anew
	})
	p.do(chromedp.MouseClickXY(x, y))
}

// place scrolls to the element and returns its middle, or an error if something else is there.
func (p *tab) place(ctx context.Context, n node) (x, y float64, err error) {
	if _, err := chromedp.Call(ctx, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: n.id}); err != nil {
		return 0, 0, err
	}
	box, err := chromedp.Call(ctx, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: n.id})
	if err != nil {
		return 0, 0, err
	}
	if len(box.Quads) == 0 {
		return 0, 0, errors.New("it has no place on the page")
	}
	q := box.Quads[0]
	x, y = (q[0]+q[4])/2, (q[1]+q[5])/2
	hit, err := p.ask(ctx, n, fmt.Sprintf(`function() {
		const at = document.elementFromPoint(%f, %f);
		return this.contains(at) || [...(this.labels ?? [])].some(l => l.contains(at)) ? "" : at?.outerHTML.slice(0, 200) ?? "nothing";
	}`, x, y))
	if err == nil && hit != "" {
		err = fmt.Errorf("it is covered by %s", hit)
	}
	return x, y, err
}

// ask calls a function with the node as its this, and returns its answer.
func (p *tab) ask(ctx context.Context, n node, function string) (string, error) {
	object, err := chromedp.Call(ctx, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: n.id})
	if err != nil {
		return "", err
	}
	answer, err := chromedp.Call(ctx, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
		FunctionDeclaration: function, ObjectID: object.Object.ObjectID, ReturnByValue: new(true),
	})
	if err != nil {
		return "", err
	}
	if answer.ExceptionDetails != nil {
		return "", fmt.Errorf("%s", exception(answer.ExceptionDetails))
	}
	var text string
	return text, json.Unmarshal(answer.Result.Value, &text)
}

// value returns a property of the element as text.
func (p *tab) value(e element, property string) string {
	p.t.Helper()
	n := p.find(e)
	var text string
	p.call(func(ctx context.Context) (err error) {
		text, err = p.ask(ctx, n, "function() { return String(this["+quoted(property)+"]); }")
		return err
	})
	return text
}

// write replaces the text of a field, as somebody who types.
func (p *tab) write(e element, text string) {
	p.t.Helper()
	n := p.find(e)
	p.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, dom.Focus, dom.FocusParams{BackendNodeID: n.id})
		if err == nil {
			_, err = p.ask(ctx, n, `function() { this.select?.(); return ""; }`)
		}
		return err
	})
	if text == "" {
		p.press(kb.Delete)
		return
	}
	p.press(text)
}

// press presses keys one after the other.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}
