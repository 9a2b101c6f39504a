package httpapi

import (
	"crypto/sha256"
	_ "embed" // embeds the files that are served unchanged
	"encoding/base64"
	"net/http"
	"strconv"

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

// renderDocs renders the page.
func renderDocs() ([]byte, error) { return renderPage(openapiText) }
