package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsPage: every call and every form is on the page, which loads and runs nothing.
func TestDocsPage(t *testing.T) {
	w := newWorld(t, Options{})
	home := w.ask("GET", "/", "")
	assert.Equal(t, "docs", home.header.Get("Location"))
	got := w.ask("GET", "/docs", "")
	require.Equal(t, 200, got.status)
	for key, op := range theBook().operations() {
		method, path, _ := strings.Cut(key, " ")
		assert.Contains(t, got.text, `<details id="`+op["operationId"].(string)+`">`)
		assert.Contains(t, got.text, "<code>"+method+" "+path+"</code>")
		assert.Contains(t, got.text, op["summary"].(string))
	}
	for name := range theBook().at([]string{"components", "schemas"}).(map[string]any) {
		assert.Contains(t, got.text, `<details id="schema-`+name+`">`)
	}
	assert.Contains(t, got.text, "ada@example.org", "the examples")
	assert.Contains(t, got.text, "There is no token, none that the server knows, or one that has expired.", "what is shared between calls")

	_, rest, _ := strings.Cut(got.text, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := got.header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", "the style that is allowed is this one")
	assert.NotContains(t, policy, "unsafe")
	for _, outside := range []string{"<script", "src=", "url(", "@import", "style=", "ZgotmplZ", "<link"} {
		assert.NotContains(t, got.text, outside)
	}
	assert.Contains(t, got.text, `name="viewport" content="width=device-width`, "for phones")
	assert.Contains(t, style, "color-scheme: light dark")
}

// TestAnswersAreNotKept: neither by browsers nor by proxies, and their type is not guessed.
func TestAnswersAreNotKept(t *testing.T) {
	w := newWorld(t, Options{})
	assert.Empty(t, w.ask("HEAD", "/v1/stats", "").text)
	for _, path := range []string{"/v1/stats", "/docs", "/nowhere"} {
		got := w.ask("GET", path, "")
		assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
		assert.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
	}
}
