package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"path"
	"slices"
	"strings"
)

// A file with aliases, before and after.
type file struct{ was, is []byte }

// generate returns all files that have aliases, by path.
func generate(root string) (map[string]file, error) {
	sources := &sources{root: root, read: map[string]*source{}}
	outer, err := sources.source("contract")
	if err != nil {
		return nil, err
	}
	contract, err := sources.source(storeFolder)
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for _, folder := range packages {
		public, err := sources.source(folder)
		if err != nil {
			return nil, err
		}
		for _, name := range public.paths() {
			was := public.texts[name]
			is, err := rewrite(sources, scope{public, outer, contract}, public.files[name], was)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path.Join(folder, name), err)
			}
			files[path.Join(folder, name)] = file{was, is}
		}
	}
	return files, nil
}

// An edit puts a text in the place of another.
type edit struct {
	from, to int // offsets
	text     string
}

// rewrite gives each alias of the file its documentation.
func rewrite(sources *sources, in scope, f *ast.File, text []byte) ([]byte, error) {
	offset := func(p token.Pos) int { return in.public.fset.Position(p).Offset }
	var edits []edit
	for _, a := range aliases(f) {
		of, err := sources.source(a.folder)
		if err != nil {
			return nil, err
		}
		doc, err := describe(in, of, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		e := edit{from: offset(a.pos), to: offset(a.pos), text: comment(doc, a.indent())}
		if a.doc != nil {
			e.from = offset(a.doc.Pos())
		}
		if before := strings.TrimRight(string(text[:e.from]), " \t"); a.grouped && !strings.HasSuffix(before, "\n\n") && !strings.HasSuffix(before, "(\n") {
			e.text = "\n" + a.indent() + e.text
		}
		edits = append(edits, e)
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
	for _, e := range edits {
		text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
	}
	return format.Source(text)
}

// comment is the text as a comment that stands directly above something.
func comment(text, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("// "+line, " \n"))
		b.WriteString("\n" + indent)
	}
	return strings.ReplaceAll(b.String(), "// \t", "//\t")
}

// An alias is a name for a type of an internal package.
type alias struct {
	name    string
	folder  string // of the type
	typ     string // its name there
	grouped bool   // among others in parentheses
	doc     *ast.CommentGroup
	pos     token.Pos // where the line begins that the comment is to stand above
}

func (a alias) indent() string {
	if a.grouped {
		return "\t"
	}
	return ""
}

// aliases returns those of the file whose types are internal.
func aliases(f *ast.File) []alias {
	imported := importsOf(f)
	var found []alias
	for _, d := range f.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE {
			continue
		}
		for _, s := range d.Specs {
			s := s.(*ast.TypeSpec)
			to, ok := s.Type.(*ast.SelectorExpr)
			if !s.Assign.IsValid() || !ok {
				continue
			}
			folder, internal := inModule(imported[to.X.(*ast.Ident).Name])
			if !internal {
				continue
			}
			a := alias{name: s.Name.Name, folder: folder, typ: to.Sel.Name, doc: d.Doc, pos: d.Pos()}
			if d.Lparen.IsValid() {
				a.grouped, a.doc, a.pos = true, s.Doc, s.Pos()
			}
			found = append(found, a)
		}
	}
	return found
}

// inModule returns the folder of an internal package of this module.
func inModule(importPath string) (folder string, internal bool) {
	folder, ok := strings.CutPrefix(importPath, module+"/")
	return folder, ok && strings.HasPrefix(folder, "internal/")
}
