package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/seed-ed332417/jq/internal/wire"
)

// A book is the document of OpenAPI, and what of it the tests have seen.
type book struct {
	doc    map[string]any
	asked  *jsonschema.Compiler // for requests
	told   *jsonschema.Compiler // for answers: what is not documented is refused
	routes *http.ServeMux       // of the documented paths

	mu      sync.Mutex // guards the fields below
	seen    map[string]bool
	schemas map[string]*jsonschema.Schema
}

var theBook = sync.OnceValue(func() *book {
	b := &book{routes: http.NewServeMux(), seen: map[string]bool{}, schemas: map[string]*jsonschema.Schema{}}
	b.doc = parsed(openapiText).(map[string]any)
	b.asked, b.told = compiler(parsed(openapiText)), compiler(closed(parsed(openapiText)))
	for key := range b.operations() {
		if key == "GET /" {
			key = "GET /{$}"
		}
		b.routes.Handle(key, http.NotFoundHandler())
	}
	return b
})

func parsed(text []byte) any {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	return doc
}

func compiler(doc any) *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("book.json", doc); err != nil {
		panic(err)
	}
	return c
}

// closed lets objects have no properties but those that are documented.
func closed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			closed(child)
		}
		if _, is := v["properties"].(map[string]any); is && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	case []any:
		for _, child := range v {
			closed(child)
		}
	}
	return v
}

// operations are all of them, by method and path.
func (b *book) operations() map[string]map[string]any {
	all := map[string]map[string]any{}
	for path, methods := range b.doc["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			all[strings.ToUpper(method)+" "+path] = op.(map[string]any)
		}
	}
	return all
}

func (b *book) unseen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var unseen []string
	for key, op := range b.operations() {
		for status := range op["responses"].(map[string]any) {
			if !b.seen[key+" "+status] {
				unseen = append(unseen, key+" "+status)
			}
		}
	}
	slices.Sort(unseen)
	return unseen
}

// record compares each request and its answer with the book.
func (b *book) record(t *testing.T, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &heard{ReadCloser: r.Body}
		if asked.tooLong = r.ContentLength > wire.MaxBody; !asked.tooLong {
			asked.text.Grow(max(int(r.ContentLength), 0))
		}
		r.Body = asked
		told := &teller{ResponseWriter: w}
		h.ServeHTTP(told, r) // an answer that is broken off by a panic is none
		if told.brokenOff(r) {
			return
		}
		problem := b.check(r, asked.text.Bytes(), told)
		if asked.tooLong && told.status < 400 {
			problem = "a body that is longer than any may be was taken"
		}
		if problem != "" {
			t.Errorf("%s %s: %s\nasked: %.300s\ntold: %d %.600s", r.Method, r.URL, problem, asked.text.Bytes(), told.status, told.text.Bytes())
		}
	})
}

// A heard body is kept, unless it is so long that it must be refused.
type heard struct {
	io.ReadCloser
	text    bytes.Buffer
	tooLong bool
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if !h.tooLong {
		h.text.Write(p[:n])
	}
	return n, err
}

type teller struct {
	http.ResponseWriter
	status int
	text   bytes.Buffer
}

func (t *teller) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// brokenOff says that the client is gone, or its connection broken: the server closes it, for what was promised is not there.
func (t *teller) brokenOff(r *http.Request) bool {
	if t.status == 0 {
		return r.Context().Err() != nil
	}
	promised, err := strconv.Atoi(t.Header().Get("Content-Length"))
	return err == nil && t.text.Len() < promised && r.Method != http.MethodHead
}

func (t *teller) WriteHeader(status int) {
	t.status = status
	if length, err := strconv.Atoi(t.Header().Get("Content-Length")); err == nil {
		t.text.Grow(length)
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *teller) Write(p []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	t.text.Write(p)
	return t.ResponseWriter.Write(p)
}

// check says what is not as documented.
func (b *book) check(r *http.Request, asked []byte, told *teller) string {
	status, text := told.status, told.text.Bytes()
	if status == 0 {
		status = http.StatusOK
	}
	escaped := r.URL.EscapedPath()
	_, pattern := b.routes.Handler(r)
	if pattern == "" || escaped != clean(escaped) || status == http.StatusMisdirectedRequest {
		return b.stray(status, text, told.Header())
	}
	key := strings.TrimSuffix(pattern, "{$}")
	method, path, _ := strings.Cut(key, " ")
	at := []string{"paths", path, strings.ToLower(method)}
	answer := append(slices.Clone(at), "responses", strconv.Itoa(status))
	shape, there := b.at(answer).(map[string]any)
	if !there {
		return "this status is not documented"
	}
	if ref, is := shape["$ref"].(string); is {
		answer = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		shape = b.at(answer).(map[string]any)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[key+" "+strconv.Itoa(status)] = true
	if status < 400 && len(asked) > 0 {
		if wrong := b.valid(b.asked, append(at, "requestBody", "content", wire.JSON, "schema"), asked); wrong != "" {
			return "the request was taken, and is not as documented: " + wrong
		}
	}
	for name := range headersOf(shape) {
		if told.Header().Get(name) == "" {
			return "the header " + name + " is missing"
		}
	}
	return b.checkBody(r, told, answer, shape, text)
}

func headersOf(shape map[string]any) map[string]any {
	headers, _ := shape["headers"].(map[string]any)
	return headers
}

func (b *book) checkBody(r *http.Request, told *teller, answer []string, shape map[string]any, text []byte) string {
	content, has := shape["content"].(map[string]any)
	if !has {
		if len(text) > 0 {
			return "there is an answer where none is documented"
		}
		return ""
	}
	kind, _, _ := mime.ParseMediaType(told.Header().Get("Content-Type"))
	if _, documented := content[kind]; !documented {
		return fmt.Sprintf("the type %q is not documented", kind)
	}
	if r.Method == http.MethodHead {
		return ""
	}
	switch kind {
	case wire.JSON, wire.Problem:
		return b.valid(b.told, append(answer, "content", kind, "schema"), text)
	case wire.Events:
		return b.events(text)
	default:
		return ""
	}
}

// events checks what stands in a stream.
func (b *book) events(text []byte) string {
	forms := map[string]string{"wakeup": "Wakeup", "job": "Event", "audit": "Act"}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		_, named, is := strings.Cut(block, "event: ")
		if !is {
			continue
		}
		name, data, _ := strings.Cut(named, "\ndata: ")
		if form, known := forms[name]; known {
			if wrong := b.valid(b.told, []string{"components", "schemas", form}, []byte(data)); wrong != "" {
				return wrong
			}
		} else if name != "reset" {
			return "an event named " + name
		}
	}
	return ""
}

func (b *book) stray(status int, text []byte, header http.Header) string {
	var f wire.Fail
	_ = json.Unmarshal(text, &f)
	switch {
	case status == http.StatusNotFound && f.Type == urn+"no_such_call":
	case status == http.StatusMisdirectedRequest && f.Type == urn+"no_such_host":
	case status == http.StatusMethodNotAllowed && f.Type == urn+"no_such_method" && header.Get("Allow") != "":
	default:
		return "this call is not documented"
	}
	return ""
}

// valid says why the text does not fit the schema.
func (b *book) valid(c *jsonschema.Compiler, path []string, text []byte) string {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err.Error()
	}
	place := pointer(path)
	key := fmt.Sprintf("%p %s", c, place)
	schema := b.schemas[key]
	if schema == nil {
		if schema, err = c.Compile(place); err != nil {
			return err.Error()
		}
		b.schemas[key] = schema
	}
	if err := schema.Validate(value); err != nil {
		return err.Error()
	}
	return ""
}

func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	u := url.URL{Path: "book.json"}
	for _, part := range path {
		u.Fragment += "/" + escape.Replace(part)
	}
	return u.String()
}

func (b *book) at(path []string) any {
	var v any = b.doc
	for _, part := range path {
		object, is := v.(map[string]any)
		if !is {
			return nil
		}
		v = object[part]
	}
	return v
}

// TestTableIsDocumented: the table of routes and the book have the same calls, for the same roles.
func TestTableIsDocumented(t *testing.T) {
	documented := theBook().operations()
	for _, r := range table() {
		key := r.method + " " + strings.TrimSuffix(r.path, "{$}")
		op, there := documented[key]
		if !there {
			t.Errorf("%s is not documented", key)
			continue
		}
		delete(documented, key)
		if said := rolesOf(op); !slices.Equal(said, r.everyRole()) {
			t.Errorf("%s is documented for %q, and is for %q", key, said, r.everyRole())
		}
	}
	if len(documented) > 0 {
		t.Errorf("documented, and no call: %v", slices.Collect(maps.Keys(documented)))
	}
}

// rolesOf are the documented roles of an operation.
func rolesOf(op map[string]any) (roles []Role) {
	said, _ := op["x-roles"].([]any)
	for _, role := range said {
		roles = append(roles, Role(role.(string)))
	}
	return roles
}
