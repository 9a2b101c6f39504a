package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/printer"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// The lines that begin what is generated. Of an alias that stands alone, what is before them is written by hand; of one in a group
// all is generated.
const (
	headFields    = "Its fields:"
	headMethods   = "Its methods:"
	headBeyond    = "Its methods beyond the contract:"
	headInterface = "Its methods, with the first sentence of each:"
	headValues    = "Its values:"
)

// describe is the comment of the alias.
func describe(in scope, of *source, a alias) (string, error) {
	spec, head, f := of.typ(a.typ)
	if spec == nil {
		return "", fmt.Errorf("package %s has no type %s", of.folder, a.typ)
	}
	if !a.grouped {
		head = byHand(a.doc.Text())
	}
	w := &writer{scope: in, of: of, alias: a, file: f}
	switch t := spec.Type.(type) {
	case *ast.StructType:
		w.block(headFields, w.fields(t))
	case *ast.InterfaceType:
		if of.folder == storeFolder { // the whole comments are the contract, which is read where it stands
			w.block(headInterface, w.interfaceMethods(t, sentence))
		} else {
			w.block(headMethods, w.interfaceMethods(t, whole))
		}
	default:
		w.block(headValues, w.values())
	}
	if strings.HasPrefix(of.folder, storeFolder+"/adapters/") && a.typ == "Store" {
		w.block(headBeyond, w.methods(in.contract.abilities()))
	} else {
		w.block(headMethods, w.methods(nil))
	}
	if a.grouped {
		head = w.links(head)
	}
	return strings.TrimSpace(head) + "\n" + w.out.String(), w.err
}

// byHand is the part of a comment that nothing has generated.
func byHand(comment string) string {
	for _, head := range []string{headFields, headMethods, headBeyond, headInterface, headValues} {
		comment, _, _ = strings.Cut("\n"+comment, "\n"+head+"\n")
	}
	return comment
}

// A scope is the package for whose readers types are named, beside the contract's inner and outer package.
type scope struct {
	public, outer, contract *source
}

const storeFolder = "internal/store"

// name is how readers of the package call a type of the folder.
func (s scope) name(folder, typ string) string {
	for _, name := range s.public.paths() {
		for _, a := range aliases(s.public.files[name]) {
			if a.folder == folder && a.typ == typ {
				return a.name
			}
		}
	}
	if folder == storeFolder && s.outer.exports()[typ] {
		return "contract." + typ
	}
	return path.Base(folder) + "." + typ
}

// A writer writes the parts of one comment.
type writer struct {
	scope
	of    *source
	alias alias
	file  *ast.File // in which the type stands
	out   strings.Builder
	err   error
}

// block writes lines of Go, where there are any.
func (w *writer) block(head, code string) {
	if code == "" {
		return
	}
	w.out.WriteString("\n" + head + "\n\n")
	for line := range strings.Lines(code) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			line = "\t" + line
		}
		w.out.WriteString(line + "\n")
	}
}

// fields are those of a struct, as they stand in its source, without the ones that are not exported and without tags.
func (w *writer) fields(t *ast.StructType) string {
	var b strings.Builder
	line, last := w.of.fset.Position, 0
	for _, field := range t.Fields.List {
		var names []string
		for _, id := range field.Names {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
		if len(names) == 0 && len(field.Names) > 0 {
			continue
		}
		begin := line(field.Pos()).Line
		if field.Doc != nil {
			begin = line(field.Doc.Pos()).Line
		}
		if last > 0 && begin > last+1 {
			b.WriteString("\n")
		}
		last = line(field.End()).Line
		whole(&b, field.Doc.Text())
		fmt.Fprintf(&b, "%s %s", strings.Join(names, ", "), w.expr(w.file, field.Type))
		if text := strings.TrimSpace(field.Comment.Text()); text != "" {
			b.WriteString(" // " + text)
		}
		b.WriteString("\n")
	}
	return w.formatted("type T struct {\n", b.String(), "}\n")
}

// interfaceMethods are those of an interface, each with what is to be told of its comment.
func (w *writer) interfaceMethods(t *ast.InterfaceType, tell func(b *strings.Builder, comment string)) string {
	var b strings.Builder
	for _, m := range t.Methods.List {
		if len(m.Names) == 0 {
			b.WriteString(w.expr(w.file, m.Type) + "\n")
			continue
		}
		tell(&b, m.Doc.Text())
		b.WriteString(m.Names[0].Name + strings.TrimPrefix(w.expr(w.file, m.Type), "func") + "\n")
	}
	return b.String()
}

// methods are those of a type that is no interface, each with the first sentence of its comment.
func (w *writer) methods(without map[string]bool) string {
	var b strings.Builder
	for _, m := range w.of.methods(w.alias.typ) {
		if without[m.Name.Name] || plumbing[m.Name.Name] {
			continue
		}
		sentence(&b, m.Doc.Text())
		fmt.Fprintf(&b, "func (%s) %s%s\n", w.expr(m.in, m.Recv.List[0].Type), m.Name.Name, strings.TrimPrefix(w.expr(m.in, m.Type), "func"))
	}
	return b.String()
}

var link = regexp.MustCompile(`\[(\*?)([A-Z]\w*)((?:\.\w+)?)\]`)

// links takes the brackets from names that readers of the package can not follow.
func (w *writer) links(text string) string {
	exported := w.public.exports()
	return link.ReplaceAllStringFunc(text, func(found string) string {
		if exported[link.FindStringSubmatch(found)[2]] {
			return found
		}
		return strings.Trim(found, "[]")
	})
}

// plumbing are methods that nobody calls by name.
var plumbing = map[string]bool{"MarshalJSON": true, "UnmarshalJSON": true}

// values are the constants of the type that the package exports.
func (w *writer) values() string {
	var b strings.Builder
	exported := w.public.exports()
	for _, c := range w.of.constants(w.alias.typ) {
		if !exported[c.name] {
			continue
		}
		fmt.Fprintf(&b, "%s = %s", c.name, c.value)
		if c.comment != "" {
			b.WriteString(" // " + c.comment)
		}
		b.WriteString("\n")
	}
	return w.formatted("const (\n", b.String(), ")\n")
}

// sentence writes the first one of a comment as comment lines.
func sentence(b *strings.Builder, text string) {
	const width = 110
	line := "//"
	text = link.ReplaceAllString(new(doc.Package).Synopsis(text), "$1$2$3") // within code, brackets would be shown
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = "//"
		}
		line += " " + word
	}
	if line != "//" {
		b.WriteString(line + "\n")
	}
}

// whole writes a comment as it is.
func whole(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("// "+line, " \n") + "\n")
	}
}

// expr is a type as readers of the package would write it.
func (w *writer) expr(f *ast.File, e ast.Expr) string {
	imported := importsOf(f)
	var b strings.Builder
	printed := rename(e, func(pkg, name string) string {
		if pkg == "" {
			if !ast.IsExported(name) {
				return name
			}
			return w.name(w.of.folder, name)
		}
		if folder, internal := inModule(imported[pkg]); internal {
			return w.name(folder, name)
		}
		return pkg + "." + name
	})
	if err := printer.Fprint(&b, token.NewFileSet(), printed); err != nil && w.err == nil {
		w.err = err
	}
	return b.String()
}

// rename copies a type with other names for what it is made of.
func rename(e ast.Expr, name func(pkg, name string) string) ast.Expr {
	list := func(of *ast.FieldList) *ast.FieldList {
		if of == nil {
			return nil
		}
		copied := &ast.FieldList{}
		for _, field := range of.List {
			var names []*ast.Ident
			for _, id := range field.Names {
				names = append(names, ast.NewIdent(id.Name))
			}
			copied.List = append(copied.List, &ast.Field{Names: names, Type: rename(field.Type, name)})
		}
		return copied
	}
	switch e := e.(type) {
	case *ast.Ident:
		return ast.NewIdent(name("", e.Name))
	case *ast.SelectorExpr:
		return ast.NewIdent(name(e.X.(*ast.Ident).Name, e.Sel.Name))
	case *ast.StarExpr:
		return &ast.StarExpr{X: rename(e.X, name)}
	case *ast.ArrayType:
		return &ast.ArrayType{Len: e.Len, Elt: rename(e.Elt, name)}
	case *ast.MapType:
		return &ast.MapType{Key: rename(e.Key, name), Value: rename(e.Value, name)}
	case *ast.ChanType:
		return &ast.ChanType{Dir: e.Dir, Value: rename(e.Value, name)}
	case *ast.Ellipsis:
		return &ast.Ellipsis{Elt: rename(e.Elt, name)}
	case *ast.FuncType:
		return &ast.FuncType{Params: list(e.Params), Results: list(e.Results)}
	default:
		return e
	}
}

// formatted lines the code up, as gofmt does within the declaration.
func (w *writer) formatted(before, code, after string) string {
	if code == "" {
		return ""
	}
	text, err := format.Source([]byte("package p\n\n" + before + code + after))
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		return ""
	}
	_, body, _ := strings.Cut(string(text), before)
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(body, after)) {
		b.WriteString(strings.TrimPrefix(line, "\t"))
	}
	return b.String()
}
