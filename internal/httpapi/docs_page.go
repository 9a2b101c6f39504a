package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/wire"
)

// The data of the template.
type (
	docsPage struct {
		Style    template.CSS
		Title    string
		Summary  string
		Intro    []prose
		Sections []sectionDoc
		Values   []fieldDoc  // what is a string or a document, and has a name
		Errors   []*errorDoc // those that several calls have
		Problem  []tableDoc
		Groups   []*groupDoc
	}
	sectionDoc struct {
		ID, Title string
		Text      []prose
	}
	groupDoc struct {
		ID, Name, Description string
		Calls                 []*callDoc
	}
	callDoc struct {
		ID, Method, Path, Summary string
		Text                      []prose
		Roles                     []Role
		Curl                      string
		Short                     bool // the example, so that a screen shows it as a whole
		Parameters                []fieldDoc
		Request                   []tableDoc
		Optional                  bool // the body
		Done                      doneDoc
		Errors                    []*errorDoc // those that are explained once for all calls
		Failures                  []*errorDoc // its own
	}
	doneDoc struct {
		Status, Text string
		Headers      []fieldDoc
		Tables       []tableDoc
		Example      string
	}
	errorDoc struct {
		ID, Status string
		Type       string // of the problem, if there is but one
		Text       string
	}
	// A prose is a paragraph, in which some words are code.
	prose []span
	span  struct {
		Text string
		Code bool
	}
)

// renderPage renders the page of an OpenAPI document. Groups are in the order of its tags, the calls of a group in that of the routes.
func renderPage(text []byte) ([]byte, error) {
	b := pageBuilder{shown: map[string]bool{}}
	if err := json.Unmarshal(text, &b.doc); err != nil {
		return nil, err
	}
	page, err := b.page()
	if err != nil {
		return nil, err
	}
	t, err := template.New("docs").Funcs(template.FuncMap{"words": words}).Parse(docsText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, page)
	return out.Bytes(), err
}

// A pageBuilder remembers which schemas the page shows already: each has one table, in the first call that needs it.
type pageBuilder struct {
	doc    document
	shown  map[string]bool
	answer bool // whether the schemas are of answers now
}

func (b *pageBuilder) page() (*docsPage, error) {
	info := b.doc.Info
	page := &docsPage{Style: template.CSS(docsStyle), Title: info.Title, Summary: info.Summary} //nolint:gosec // it is our own
	intro, rest, _ := strings.Cut(info.Description, "\n\n## ")
	page.Intro = paragraphs(intro)
	for part := range strings.SplitSeq(rest, "\n\n## ") {
		title, text, _ := strings.Cut(part, "\n\n")
		page.Sections = append(page.Sections, sectionDoc{"about-" + strings.ToLower(title), title, paragraphs(text)})
	}
	for _, s := range b.doc.Components.Schemas {
		if s.Value.Type != "object" {
			b.shown[s.Name] = true
			page.Values = append(page.Values, fieldDoc{ID: "schema-" + s.Name, Name: s.Name, Text: s.Value.Description, Enum: unexplained(s.Value)})
		}
	}
	var err error
	b.answer = true
	if page.Problem, err = b.tables("", &schema{Ref: "#/components/schemas/Problem"}); err != nil {
		return nil, err
	}
	for _, tag := range b.doc.Tags {
		page.Groups = append(page.Groups, &groupDoc{"group-" + strings.ToLower(tag.Name), tag.Name, tag.Description, nil})
	}
	if err := b.calls(page); err != nil {
		return nil, err
	}
	page.Errors = sharedErrors(page.Groups)
	return page, nil
}

// calls adds each call to its group.
func (b *pageBuilder) calls(page *docsPage) error {
	routes := table()
	for _, group := range page.Groups {
		for _, r := range routes {
			path := strings.TrimSuffix(r.path, "{$}")
			op := b.doc.Paths[path][strings.ToLower(r.method)]
			if op == nil || !slices.Equal(op.Tags, []string{group.Name}) {
				continue
			}
			call, err := b.call(r.method, path, op)
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.method, path, err)
			}
			group.Calls = append(group.Calls, call)
		}
	}
	return nil
}

func (b *pageBuilder) call(method, path string, op *operation) (call *callDoc, err error) {
	call = &callDoc{
		ID: op.OperationID, Method: method, Path: path, Summary: op.Summary, Text: paragraphs(op.Description), Roles: op.Roles,
		Curl: curl(method, path, op),
	}
	b.answer = false
	for _, p := range op.Parameters {
		field, err := b.field(p.Name, p.Schema)
		if err != nil {
			return nil, err
		}
		field.Text, field.Required, field.In = p.Description, p.Required, p.In
		call.Parameters = append(call.Parameters, field)
	}
	if body, has := op.RequestBody.Content.get(wire.JSON); has {
		call.Optional = !op.RequestBody.Required
		if call.Request, err = b.tables("", body.Schema); err != nil {
			return nil, err
		}
	}
	b.answer = true
	for _, r := range op.Responses {
		if r.Name < "400" {
			call.Done, err = b.done(r.Name, r.Value)
		} else {
			err = b.failure(call, r.Name, r.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	call.Short = strings.Count(call.Curl+call.Done.Example, "\n") < tall
	return call, nil
}

// tall is how many lines an example may have to stay in view while the text beside it scrolls.
const tall = 26

// done returns what a call answers if it succeeds.
func (b *pageBuilder) done(status string, r reply) (doneDoc, error) {
	done := doneDoc{Status: spelled(status), Text: r.Description}
	for _, h := range r.Headers {
		done.Headers = append(done.Headers, fieldDoc{Name: h.Name, Text: h.Value.Description})
	}
	for _, c := range r.Content {
		done.Example = shown(c.Value.Example)
		tables, err := b.tables("", c.Value.Schema)
		if err != nil {
			return doneDoc{}, err
		}
		done.Tables = append(done.Tables, tables...)
		for _, event := range c.Value.Events {
			tables, err := b.tables("The data of an event named "+event.Name, event.Value)
			if err != nil {
				return doneDoc{}, err
			}
			done.Tables = append(done.Tables, tables...)
		}
	}
	return done, nil
}

// spelled returns a status with its words.
func spelled(status string) string {
	code, err := strconv.Atoi(status)
	if err != nil {
		return status
	}
	return status + " " + http.StatusText(code)
}

// failure adds an error to a call. What one call has alone, and what is not there or in the way, is explained beside the call.
func (b *pageBuilder) failure(call *callDoc, status string, r reply) (err error) {
	var name string
	if r.Ref != "" {
		if name, r, err = b.doc.shared(r.Ref); err != nil {
			return err
		}
	}
	e := &errorDoc{ID: "error-" + name, Status: spelled(status), Text: r.Description}
	if name == "" || status == "404" || status == "409" {
		if e.Type, err = problemType(r); err != nil {
			return fmt.Errorf("the example of %s: %w", status, err)
		}
		call.Failures = append(call.Failures, e)
	} else {
		call.Errors = append(call.Errors, e)
	}
	return nil
}

// problemType returns the type of the problem that an answer has as its example.
func problemType(r reply) (string, error) {
	m, has := r.Content.get(wire.Problem)
	if !has {
		return "", nil
	}
	var f wire.Fail
	err := json.Unmarshal(m.Example, &f)
	return strings.TrimPrefix(f.Type, urn), err
}

// sharedErrors returns the errors that are explained once, by their status.
func sharedErrors(groups []*groupDoc) (all []*errorDoc) {
	seen := map[string]bool{}
	for _, g := range groups {
		for _, c := range g.Calls {
			for _, e := range c.Errors {
				if !seen[e.ID] {
					seen[e.ID] = true
					all = append(all, e)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *errorDoc) int { return strings.Compare(a.Status, b.Status) })
	return all
}

func paragraphs(text string) (out []prose) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, "\n\n") {
		out = append(out, words(part))
	}
	return out
}

// words splits a text at its backticks.
func words(text string) (out prose) {
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			out = append(out, span{part, i%2 == 1})
		}
	}
	return out
}
