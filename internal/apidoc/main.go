// Command apidoc writes the documentation of aliases.
//
// The public packages give names to types of internal packages, by aliases. The go command prints of an alias its own comment
// only: neither the fields nor the methods of the type. So this command writes them into the comment, from the comments of the
// type. Run it by go generate in the root of the module; a test fails when it was forgotten.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const module = "github.com/seed-ed332417/jq"

// packages are those with aliases, by folder.
var packages = []string{".", "contract", "postgres", "sqlite", "remote", "jqtest"}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

// run brings the files of the module up to date.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, file := range files {
		if !slices.Equal(file.was, file.is) {
			if err := os.WriteFile(filepath.Join(root, path), file.is, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
