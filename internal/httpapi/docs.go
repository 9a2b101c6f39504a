package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // embeds the files that are served unchanged
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/wire"
)

//go:embed openapi.json
var openapiText []byte

//go:embed docs.html
var docsText string

//go:embed docs.css
var docsStyle string

func (a *API) openapi(w *exchange, _ *http.Request) error {
	return a.file(w, wire.JSON, openapiText)
}

// docs serves the document as a page. The page may load and run nothing but its own style.
func (a *API) docs(w *exchange, _ *http.Request) error {
	page, err := a.page()
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(docsStyle))
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	return a.file(w, "text/html; charset=utf-8", page)
}

func (a *API) file(w *exchange, kind string, text []byte) error {
	a.allow(w)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if _, err := w.Write(text); err != nil {
		return &unsent{err}
	}
	return nil
}

// home redirects to the page. The location is relative, so that it is right behind a proxy with any path.
func (a *API) home(w *exchange, _ *http.Request) error {
	w.Header().Set("Location", "docs")
	w.WriteHeader(http.StatusFound)
	return nil
}

// The parts of the document that the page shows.
type (
	document struct {
		Info struct {
			Title, Version, Summary, Description string
		}
		Paths      map[string]map[string]*operation
		Components struct {
			Responses map[string]reply
			Schemas   map[string]json.RawMessage
		}
	}
	operation struct {
		OperationID, Summary, Description string
		Tags                              []string
		Roles                             []Role `json:"x-roles"`
		Parameters                        []parameterDoc
		RequestBody                       struct{ Content map[string]media }
		Responses                         map[string]reply
	}
	parameterDoc struct{ Name, In, Description string }
	reply        struct {
		Ref         string `json:"$ref"`
		Description string
		Content     map[string]media
	}
	media struct {
		Schema struct {
			Ref string `json:"$ref"`
		}
		Example json.RawMessage
	}
)

// The data of the template.
type (
	docsPage struct {
		Style       template.CSS
		Title       string
		Summary     string
		Description []string
		Calls       []callDoc
		Schemas     []schemaDoc
	}
	callDoc struct {
		*operation
		Method, Path    string
		Request, Answer string // examples
		Replies         []replyDoc
	}
	replyDoc  struct{ Status, Description string }
	schemaDoc struct{ Name, Text string }
)

// renderDocs renders the page. Calls are in the order of the table.
func renderDocs() ([]byte, error) {
	var doc document
	if err := json.Unmarshal(openapiText, &doc); err != nil {
		return nil, err
	}
	page := docsPage{
		Style: template.CSS(docsStyle), Title: doc.Info.Title, Summary: doc.Info.Summary, //nolint:gosec // it is our own
		Description: strings.Split(doc.Info.Description, "\n\n"),
	}
	for _, r := range table() {
		path := strings.TrimSuffix(r.path, "{$}")
		call := callDoc{operation: doc.Paths[path][strings.ToLower(r.method)], Method: r.method, Path: path}
		call.Request = call.RequestBody.Content[wire.JSON].example()
		for status, answer := range call.Responses {
			if status < "300" {
				call.Answer = answer.Content[wire.JSON].example()
			}
			if name, shared := strings.CutPrefix(answer.Ref, "#/components/responses/"); shared {
				answer = doc.Components.Responses[name]
			}
			call.Replies = append(call.Replies, replyDoc{status, answer.Description})
		}
		slices.SortFunc(call.Replies, func(a, b replyDoc) int { return strings.Compare(a.Status, b.Status) })
		page.Calls = append(page.Calls, call)
	}
	for name, text := range doc.Components.Schemas {
		page.Schemas = append(page.Schemas, schemaDoc{name, indent(text)})
	}
	slices.SortFunc(page.Schemas, func(a, b schemaDoc) int { return strings.Compare(a.Name, b.Name) })
	t, err := template.New("docs").Parse(docsText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, page)
	return out.Bytes(), err
}

func (m media) example() string {
	if m.Example == nil {
		return ""
	}
	return indent(m.Example)
}

func indent(text json.RawMessage) string {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return string(text)
	}
	return out.String()
}
