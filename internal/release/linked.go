package release

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// noticesFile has the licences of all that the program links, which most of them ask to be passed on.
const noticesFile = "THIRD_PARTY_LICENCES.txt"

// A Module is one that the program links.
type Module struct {
	Path, Version string
	Dir           string // where its source is on this machine
}

// Linked returns the modules that the program for a system links, beside jq itself, by path.
func Linked(ctx context.Context, root string, s System) ([]Module, error) {
	said, err := run(ctx, root, s.env(), "go", "list", "-deps", "-json=Module", "./cmd/jobq")
	if err != nil {
		return nil, err
	}
	found := map[string]Module{}
	for packages := json.NewDecoder(bytes.NewReader(said)); ; {
		var p struct{ Module *Module }
		switch err := packages.Decode(&p); {
		case errors.Is(err, io.EOF):
			return slices.SortedFunc(maps.Values(found), func(a, b Module) int { return cmp.Compare(a.Path, b.Path) }), nil
		case err != nil:
			return nil, err
		case p.Module != nil && p.Module.Path != module:
			found[p.Module.Path] = *p.Module
		}
	}
}

// notices is the text of the licences of all that the program links.
func notices(ctx context.Context, root string, s System) ([]byte, error) {
	modules, err := Linked(ctx, root, s)
	if err != nil {
		return nil, err
	}
	said, err := run(ctx, root, nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	text := &bytes.Buffer{}
	text.WriteString("jobq contains these modules, each under the licence that follows its name.\n")
	for _, m := range append(modules, Module{"the standard library of Go", version, goroot}) {
		fmt.Fprintf(text, "\n%s\n%s %s\n", strings.Repeat("=", 80), m.Path, m.Version)
		if err := licences(text, m.Dir); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return text.Bytes(), nil
}

// licences writes all that a module says about its licence.
func licences(to *bytes.Buffer, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, entry := range entries {
		upper := strings.ToUpper(entry.Name())
		about := strings.HasPrefix(upper, "LICEN") || strings.HasPrefix(upper, "COPYING") || strings.HasPrefix(upper, "NOTICE")
		if !about || !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "\n%s:\n\n%s\n", entry.Name(), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no licence", folder)
	}
	return nil
}
