package main

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documented are all packages whose pages people read: those of this module, and of the modules for pgx, etcd and TiKV.
var documented = append(slices.Clone(public), "jqpgx", "etcd", "tikv")

// page is what pkg.go.dev shows of a package.
func page(t *testing.T, folder string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	read, err := doc.NewFromFiles(fset, files, importPath(folder))
	require.NoError(t, err)
	return read
}

// Each page shows in its first paragraphs how the package is used, and has a program that runs.
func TestPagesBeginWithAnExample(t *testing.T) {
	for _, folder := range documented {
		p := page(t, folder)
		indented := slices.IndexFunc(strings.Split(p.Doc, "\n"), func(line string) bool { return strings.HasPrefix(line, "\t") })
		assert.True(t, 0 < indented && indented < 8, "%s: the comment of the package has code in its first lines", folder)
		whole := slices.ContainsFunc(p.Examples, func(e *doc.Example) bool { return e.Output != "" })
		assert.True(t, whole, "%s: func Example in example_test.go, with an output", folder)
	}
}

// A name alone leaves users guessing, so each has a sentence or, among constants and variables, at least words of its own.
func TestExportedNamesAreExplained(t *testing.T) {
	for _, folder := range documented {
		e := explained{t, folder, 0}
		e.page(page(t, folder))
		assert.NotZero(t, e.seen, folder)
	}
}

type explained struct {
	*testing.T
	folder string
	seen   int
}

func (e *explained) page(p *doc.Package) {
	e.values(p.Consts, p.Vars)
	e.funcs(p.Funcs)
	for _, typ := range p.Types {
		e.sentence(typ.Name, typ.Doc)
		e.values(typ.Consts, typ.Vars)
		e.funcs(typ.Funcs, typ.Methods)
		for _, spec := range typ.Decl.Specs {
			e.members(typ.Name, spec.(*ast.TypeSpec).Type)
		}
	}
}

// sentence wants one that ends, and that is about the name.
func (e *explained) sentence(name, comment string) {
	e.seen++
	first := new(doc.Package).Synopsis(comment)
	assert.True(e, strings.HasSuffix(first, ".") || strings.HasSuffix(first, ":"), "%s.%s has no sentence: %q", e.folder, name, first)
	assert.Contains(e, strings.Join(strings.Fields(first)[:min(3, len(strings.Fields(first)))], " "), name, "%s.%s: a sentence begins with the name", e.folder, name)
}

func (e *explained) funcs(lists ...[]*doc.Func) {
	for _, f := range slices.Concat(lists...) {
		e.sentence(f.Name, f.Doc)
	}
}

// values wants words about each, unless it stands alone: then the comment above is about it.
func (e *explained) values(lists ...[]*doc.Value) {
	for _, group := range slices.Concat(lists...) {
		for _, spec := range group.Decl.Specs {
			spec := spec.(*ast.ValueSpec)
			alone := len(group.Decl.Specs) == 1 && group.Doc != ""
			for _, id := range spec.Names {
				if id.IsExported() {
					e.seen++
					assert.True(e, alone || spec.Doc.Text()+spec.Comment.Text() != "", "%s.%s has no comment", e.folder, id.Name)
				}
			}
		}
	}
}

// members are the fields of a struct, and the methods of an interface. Those of aliases have a test of their own.
func (e *explained) members(name string, typ ast.Expr) {
	switch typ := typ.(type) {
	case *ast.StructType:
		e.fields(name, typ.Fields)
	case *ast.InterfaceType:
		e.fields(name, typ.Methods)
	}
}

// fields wants words about each: its own, or in the comment above the field before it.
func (e *explained) fields(name string, list *ast.FieldList) {
	above := ""
	for _, field := range list.List {
		own := field.Doc.Text() + field.Comment.Text()
		for _, id := range field.Names {
			if id.IsExported() {
				e.seen++
				assert.True(e, own != "" || strings.Contains(above, id.Name), "%s.%s.%s has no comment", e.folder, name, id.Name)
			}
		}
		above = field.Doc.Text()
	}
}
