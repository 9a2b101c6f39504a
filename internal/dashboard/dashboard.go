// Package dashboard serves the pages for operators: static files, embedded in the program. The pages run in the browser and read
// and change everything through the HTTP API, so roles, limits and the audit apply to them as to any other client.
//
// All addresses in the files are relative and the pages differ only in the fragment of the address. So they work behind a proxy
// with any path, and the server need not know it.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// policy lets the pages load and run nothing but the files of this server. Trusted types forbid every way to turn text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A file is ready to be sent.
type file struct {
	text []byte
	kind string
	etag string
}

// Handler returns the handler of `/` and of the files below `/ui/`.
func Handler() (http.Handler, error) {
	files, err := load()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "/index.html"
		if r.URL.Path != "/" {
			name = strings.TrimPrefix(r.URL.Path, "/ui")
		}
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // browsers ask each time whether the ETag is still right
		h.Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
	}), nil
}

// load reads the embedded files, by their paths.
func load() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := static.ReadFile(name)
		sum := sha256.Sum256(text)
		files[strings.TrimPrefix(name, "static")] = file{text, kinds[path.Ext(name)], `"` + hex.EncodeToString(sum[:16]) + `"`}
		return err
	})
	return files, err
}

// kinds are the content types of the files. Those of package mime depend on the system.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}
