package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the lists of exported names in testdata")

const root = "../.."

// public are all packages that anybody may import.
var public = append(slices.Clone(packages), "jqprom", "jqotel", "kv")

// internals are the packages whose types have aliases.
var internals = []string{
	storeFolder, "internal/store/adapters/memory", "internal/store/adapters/postgres", "internal/store/adapters/remote",
	"internal/store/adapters/sqlite", "internal/server", "internal/conformance", "internal/enginetest",
}

func TestGeneratedCommentsAreUpToDate(t *testing.T) {
	files, err := generate(root)
	require.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		assert.Equal(t, string(files[name].was), string(files[name].is), "%s: run go generate . in the root of the module", name)
	}
}

// The generator finds its own text in the comments, and what it has written stays as it is when it writes again.
func TestGeneratingAgainChangesNothing(t *testing.T) {
	folder := t.TempDir()
	for _, from := range append(slices.Clone(packages), internals...) {
		copyFolder(t, filepath.Join(root, from), filepath.Join(folder, from))
	}
	spoil := filepath.Join(folder, "jq.go")
	text, err := os.ReadFile(spoil)
	require.NoError(t, err)
	spoiled := strings.NewReplacer("where it waits", "somewhere", "// A Job is one row", "// A row", "[NewMemory]", "NewMemory").Replace(string(text))
	require.NotEqual(t, string(text), spoiled)
	require.NoError(t, os.WriteFile(spoil, []byte(spoiled), 0o600))
	require.NoError(t, run(folder))
	once, err := os.ReadFile(spoil)
	require.NoError(t, err)
	byHand := strings.ReplaceAll(string(text), "[NewMemory]", "NewMemory")
	assert.Equal(t, byHand, string(once), "what is generated is as it was, and what is written by hand is as somebody has left it")
	require.NoError(t, run(folder))
	twice, err := os.ReadFile(spoil)
	require.NoError(t, err)
	assert.Equal(t, string(once), string(twice))
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o700))
	paths, err := filepath.Glob(filepath.Join(from, "*.go"))
	require.NoError(t, err)
	for _, name := range paths {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o600))
	}
}

// Whoever asks the go command about an alias is answered with the fields of the struct, or the methods of the interface. One answer about a
// whole package has what the answers about its types say, in a hundredth of the time.
func TestGoDocShowsTheFieldsOfAliases(t *testing.T) {
	loaded, seen := load(t), 0
	for _, folder := range public {
		pkg, asked := loaded[importPath(folder)], false
		whole := goDoc(t, "-all", importPath(folder))
		for _, name := range pkg.Scope().Names() {
			obj, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || !obj.Exported() || !obj.IsAlias() {
				continue
			}
			said := declared(t, whole, name)
			if !asked {
				assert.Contains(t, goDoc(t, importPath(folder)+"."+name), said, "go doc says the same of a type alone")
				asked = true
			}
			switch of := obj.Type().Underlying().(type) {
			case *types.Struct:
				for f := range of.Fields() {
					if f.Exported() {
						assert.Regexp(t, `(?m)^\s+([\w, ]+, )?`+regexp.QuoteMeta(f.Name())+`\b`, said, "go doc %s.%s does not show the field", folder, name)
						seen++
					}
				}
			case *types.Interface:
				for m := range of.ExplicitMethods() {
					assert.Regexp(t, `(?m)^\s+`+regexp.QuoteMeta(m.Name())+`\(`, said, "go doc %s.%s does not show the method", folder, name)
					seen++
				}
			}
		}
	}
	assert.Greater(t, seen, 300, "fields and methods were looked at")
}

// goDoc asks the go command, as a user does.
func goDoc(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"doc"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// declared cuts the declaration of the alias, with its comment, out of what go doc says about its package.
func declared(t *testing.T, whole, name string) string {
	t.Helper()
	said := regexp.MustCompile(`(?m)^type ` + regexp.QuoteMeta(name) + ` = .*\n(\n|\s.*\n)*`).FindString(whole)
	require.NotEmpty(t, said, "go doc -all shows type %s", name)
	return strings.TrimSpace(said)
}

// What the public packages export, fields and methods included, is exactly what the lists say.
func TestExportedNamesAreThoseOfTheLists(t *testing.T) {
	loaded := load(t)
	for _, folder := range public {
		got := exported(loaded[importPath(folder)])
		name := strings.Replace(folder, ".", "jq", 1) + ".txt"
		list := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(list, []byte(strings.Join(got, "\n")+"\n"), 0o600))
		}
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		want := strings.Split(strings.TrimSpace(string(text)), "\n")
		added, gone := without(got, want), without(want, got)
		assert.True(t, len(added) == 0 && len(gone) == 0, `package %s does not export what internal/apidoc/testdata/%s says.
New:
	%s
Gone, which breaks programs that use it:
	%s
If that is meant, run go test ./internal/apidoc -run Exported -update, commit the list, and add a line to CHANGELOG.md.`,
			importPath(folder), name, strings.Join(added, "\n\t"), strings.Join(gone, "\n\t"))
	}
	lists, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	assert.Len(t, lists, len(public), "a list for each public package")
}

// Every package that can be imported from outside has a list.
func TestEveryPublicPackageHasAList(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}} {{.ImportPath}}", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	var found, want []string
	for line := range strings.Lines(string(out)) {
		name, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "main" && !strings.Contains(pkg, "/internal/") && !strings.Contains(pkg, "/examples/") {
			found = append(found, pkg)
		}
	}
	for _, folder := range public {
		want = append(want, importPath(folder))
	}
	assert.ElementsMatch(t, want, found)
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

func importPath(folder string) string { return path.Join(module, folder) }

// load reads the public packages from what the compiler has exported.
func load(t *testing.T) map[string]*types.Package {
	t.Helper()
	read := &sources{root: root, read: map[string]*source{}} // so that the go command runs this again when one of them has changed
	for _, folder := range append(slices.Clone(public), internals...) {
		_, err := read.source(folder)
		require.NoError(t, err)
	}
	args := []string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}
	for _, folder := range public {
		args = append(args, importPath(folder))
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[pkg] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(files[pkg]) })
	loaded := map[string]*types.Package{}
	for _, folder := range public {
		pkg, err := imp.Import(importPath(folder))
		require.NoError(t, err)
		loaded[importPath(folder)] = pkg
	}
	return loaded
}

// exported lists what the package exports, a line for each name.
func exported(pkg *types.Package) []string {
	named := func(p *types.Package) string {
		if p == pkg || p.Path() == importPath(storeFolder) {
			return ""
		}
		return p.Name()
	}
	var lines []string
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("const %s %s", name, types.TypeString(obj.Type(), named)))
		case *types.Var:
			lines = append(lines, fmt.Sprintf("var %s %s", name, types.TypeString(obj.Type(), named)))
		case *types.Func:
			lines = append(lines, "func "+name+signature(obj, named))
		case *types.TypeName:
			lines = append(lines, typeLines(obj, named)...)
		}
	}
	slices.Sort(lines)
	return lines
}

func typeLines(obj *types.TypeName, named types.Qualifier) []string {
	head := "type " + obj.Name()
	var lines []string
	switch of := obj.Type().Underlying().(type) {
	case *types.Struct:
		lines = append(lines, head+" struct")
		for f := range of.Fields() {
			if f.Exported() {
				lines = append(lines, fmt.Sprintf("%s field %s %s", head, f.Name(), types.TypeString(f.Type(), named)))
			}
		}
	case *types.Interface:
		lines = append(lines, head+" interface")
		for m := range of.Methods() {
			lines = append(lines, fmt.Sprintf("%s method %s%s", head, m.Name(), signature(m, named)))
		}
	default:
		lines = append(lines, head+" "+types.TypeString(of, named))
	}
	if of, ok := types.Unalias(obj.Type()).(*types.Named); ok && !types.IsInterface(of) {
		for m := range of.Methods() {
			if m.Exported() {
				lines = append(lines, fmt.Sprintf("%s method %s%s", head, m.Name(), signature(m, named)))
			}
		}
	}
	return lines
}

// signature is the type of a function without the names of its parameters, which may change.
func signature(f *types.Func, named types.Qualifier) string {
	of := f.Signature()
	bare := func(of *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range of.Variables() {
			vars = append(vars, types.NewVar(v.Pos(), v.Pkg(), "", v.Type()))
		}
		return types.NewTuple(vars...)
	}
	var constraints []string
	for p := range of.TypeParams().TypeParams() {
		constraints = append(constraints, p.Obj().Name()+" "+types.TypeString(p.Constraint(), named))
	}
	text := types.TypeString(types.NewSignatureType(nil, nil, nil, bare(of.Params()), bare(of.Results()), of.Variadic()), named)
	text = strings.TrimPrefix(text, "func")
	if len(constraints) > 0 {
		text = "[" + strings.Join(constraints, ", ") + "]" + text
	}
	return text
}

// The names of fields alone leave users guessing, so each has a comment of its own, or shares the one above the field before it.
func TestFieldsOfAliasesAreExplained(t *testing.T) {
	read := &sources{root: root, read: map[string]*source{}}
	for _, folder := range packages {
		public, err := read.source(folder)
		require.NoError(t, err)
		for _, name := range public.paths() {
			for _, a := range aliases(public.files[name]) {
				of, err := read.source(a.folder)
				require.NoError(t, err)
				spec, _, _ := of.typ(a.typ)
				if s, ok := spec.Type.(*ast.StructType); ok {
					unexplained(t, of, folder+"."+a.name, s)
				}
			}
		}
	}
}

func unexplained(t *testing.T, of *source, name string, s *ast.StructType) {
	t.Helper()
	above := -1 // the line of the field above, if its comment may be about this one too
	for _, field := range s.Fields.List {
		line := of.fset.Position(field.Pos()).Line
		explained := field.Doc != nil || field.Comment != nil || line == above+1
		for _, id := range field.Names {
			assert.True(t, explained || !id.IsExported(), "%s.%s has no comment", name, id.Name)
		}
		if field.Doc != nil || line == above+1 {
			above = line
		} else {
			above = -1
		}
	}
}
