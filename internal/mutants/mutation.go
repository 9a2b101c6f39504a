package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutation is one fault: it replaces the bytes of a file between two offsets by a text.
type mutation struct {
	File    string `json:"file"` // from the root of the module
	Line    int    `json:"line"`
	Kind    string `json:"kind"`
	Was     string `json:"was"` // the line
	Is      string `json:"is"`
	start   int
	end     int
	text    string
	outside bool // outside of all functions, where there is no coverage
}

// id identifies the mutation among all of the same sources.
func (m mutation) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", m.File, m.start, m.end, m.text))
	return fmt.Sprintf("%x", sum[:8])
}

// apply returns the file with the fault.
func (m mutation) apply(source []byte) []byte {
	return append(append(bytes.Clone(source[:m.start]), m.text...), source[m.end:]...)
}

// A finder collects the possible mutations of a file.
type finder struct {
	file   string
	source []byte
	tokens *token.File
	path   []ast.Node // from the file to the present node
	found  []mutation
}

// find returns all mutations of the file, in the order of its text.
func find(name string, source []byte) ([]mutation, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{file: name, source: source, tokens: files.File(parsed.Pos())}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if n == nil {
			f.path = f.path[:len(f.path)-1]
			return false
		}
		if imports, ok := n.(*ast.GenDecl); ok && imports.Tok == token.IMPORT {
			return false
		}
		f.visit(n)
		f.path = append(f.path, n)
		return true
	})
	return f.found, nil
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.replace("negate a condition", n.Cond.Pos(), n.Cond.End(), "!("+f.text(n.Cond)+")")
		if n.Else != nil {
			f.replace("drop an else", n.Body.End(), n.Else.End(), "")
		}
	case *ast.BinaryExpr:
		f.operator(n)
	case *ast.BasicLit:
		f.literal(n)
	case *ast.SelectorExpr:
		f.duration(n)
	case *ast.IncDecStmt:
		f.replace("swap ++ and --", n.TokPos, n.End(), map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !isPanic(call) {
			f.replace("remove a call", n.Pos(), n.End(), "")
		}
	case *ast.DeferStmt:
		f.replace("remove a defer", n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		f.assignment(n)
	case *ast.ReturnStmt:
		f.result(n)
	case *ast.BlockStmt:
		f.locks(n)
	}
}

// replace adds a mutation.
func (f *finder) replace(kind string, from, to token.Pos, text string) {
	f.edit(kind, f.tokens.Offset(from), f.tokens.Offset(to), text)
}

func (f *finder) edit(kind string, start, end int, text string) {
	m := mutation{File: f.file, Kind: kind, start: start, end: end, text: text, outside: !f.inFunction()}
	m.Line = f.tokens.Line(f.tokens.Pos(start))
	m.Was, m.Is = lineAt(f.source, start), lineAt(m.apply(f.source), start)
	f.found = append(f.found, m)
}

func (f *finder) inFunction() bool {
	for _, n := range f.path {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			return true
		}
	}
	return false
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.tokens.Offset(n.Pos()):f.tokens.Offset(n.End())])
}

// lineAt returns the line around the offset, trimmed.
func lineAt(source []byte, offset int) string {
	from := bytes.LastIndexByte(source[:offset], '\n') + 1
	to := len(source)
	if n := bytes.IndexByte(source[offset:], '\n'); n >= 0 {
		to = offset + n
	}
	return strings.TrimSpace(string(source[from:to]))
}

// operators maps each operator to its replacement and the kind of fault.
var operators = map[token.Token]struct{ text, kind string }{
	token.LSS: {"<=", "move a boundary"}, token.LEQ: {"<", "move a boundary"},
	token.GTR: {">=", "move a boundary"}, token.GEQ: {">", "move a boundary"},
	token.EQL: {"!=", "negate a comparison"}, token.NEQ: {"==", "negate a comparison"},
	token.LAND: {"||", "swap && and ||"}, token.LOR: {"&&", "swap && and ||"},
	token.ADD: {"-", "swap + and -"}, token.SUB: {"+", "swap + and -"},
}

func (f *finder) operator(n *ast.BinaryExpr) {
	if becomes, ok := operators[n.Op]; ok {
		f.replace(becomes.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), becomes.text)
	}
}

func (f *finder) literal(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT:
		if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			f.replace("be off by one", n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
		}
	case token.STRING:
		f.statement(n)
	}
}

// SQL gets the same faults as Go, and loses locks.
var (
	isSQL = regexp.MustCompile(`\b(SELECT|UPDATE|DELETE FROM|INSERT INTO)\b`)
	inSQL = []struct {
		pattern *regexp.Regexp
		text    string
	}{
		{regexp.MustCompile(` <= `), " < "}, {regexp.MustCompile(` < `), " <= "},
		{regexp.MustCompile(` >= `), " > "}, {regexp.MustCompile(` > `), " >= "},
		{regexp.MustCompile(`\bAND\b`), "OR"}, {regexp.MustCompile(`\bOR\b`), "AND"},
		{regexp.MustCompile(`\bIS NULL\b`), "IS NOT NULL"}, {regexp.MustCompile(`\bIS NOT NULL\b`), "IS NULL"},
		{regexp.MustCompile(`\bFOR UPDATE( SKIP LOCKED)?\b`), ""}, {regexp.MustCompile(` SKIP LOCKED\b`), ""},
		{regexp.MustCompile(` DESC\b`), ""}, {regexp.MustCompile(` \+ 1\b`), ""},
	}
)

func (f *finder) statement(n *ast.BasicLit) {
	if !isSQL.MatchString(n.Value) {
		return
	}
	from := f.tokens.Offset(n.Pos())
	for _, fault := range inSQL {
		for _, at := range fault.pattern.FindAllStringIndex(n.Value, -1) {
			f.edit("change a statement of SQL", from+at[0], from+at[1], fault.text)
		}
	}
}

// durations maps each unit to its replacement: much longer, or much shorter.
var durations = map[string]string{
	"Microsecond": "Millisecond", "Millisecond": "Second", "Second": "Minute", "Minute": "Second", "Hour": "Minute",
}

func (f *finder) duration(n *ast.SelectorExpr) {
	if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && durations[n.Sel.Name] != "" {
		f.replace("change a duration", n.Sel.Pos(), n.Sel.End(), durations[n.Sel.Name])
	}
}

func isPanic(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// assignment removes an assignment.
func (f *finder) assignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		return
	}
	blanks := make([]string, len(n.Lhs))
	for i, left := range n.Lhs {
		blanks[i] = "_"
		if name, ok := left.(*ast.Ident); ok && name.Name == "_" && len(n.Lhs) == 1 {
			return
		}
	}
	f.replace("remove an assignment", n.Lhs[0].Pos(), n.Rhs[0].Pos(), strings.Join(blanks, ", ")+" = ")
}

// result returns nil in place of an error.
func (f *finder) result(n *ast.ReturnStmt) {
	if len(n.Results) == 0 || !f.returnsError() {
		return
	}
	last := n.Results[len(n.Results)-1]
	name, plain := last.(*ast.Ident)
	_, made := last.(*ast.CallExpr)
	if plain && name.Name != "nil" || made && len(n.Results) > 1 {
		f.replace("return no error", last.Pos(), last.End(), "nil")
	}
}

// returnsError reports whether the innermost function has an error as its last result.
func (f *finder) returnsError() bool {
	for _, n := range slices.Backward(f.path) {
		var kind *ast.FuncType
		switch n := n.(type) {
		case *ast.FuncDecl:
			kind = n.Type
		case *ast.FuncLit:
			kind = n.Type
		default:
			continue
		}
		if kind.Results == nil {
			return false
		}
		last, ok := kind.Results.List[len(kind.Results.List)-1].Type.(*ast.Ident)
		return ok && last.Name == "error"
	}
	return false
}

// noLock is the kind of a mutation that only the race detector notices, as a rule.
const noLock = "remove a lock"

// locks removes a lock together with its deferred unlock. Removing only one of them would just crash.
func (f *finder) locks(block *ast.BlockStmt) {
	for i := range len(block.List) - 1 {
		lock, isCall := block.List[i].(*ast.ExprStmt)
		unlock, isDefer := block.List[i+1].(*ast.DeferStmt)
		if !isCall || !isDefer {
			continue
		}
		text := f.text(lock)
		if of, ok := strings.CutSuffix(text, ".Lock()"); ok && f.text(unlock) == "defer "+of+".Unlock()" {
			f.replace(noLock, lock.Pos(), unlock.End(), "")
		}
	}
}
