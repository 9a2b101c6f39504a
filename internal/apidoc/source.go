package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sources reads packages of the module, each once.
type sources struct {
	root string
	read map[string]*source
}

// A source is one package: its files without the tests, by name.
type source struct {
	folder string
	fset   *token.FileSet
	files  map[string]*ast.File
	texts  map[string][]byte
}

func (s *sources) source(folder string) (*source, error) {
	if known := s.read[folder]; known != nil {
		return known, nil
	}
	paths, err := filepath.Glob(filepath.Join(s.root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	read := &source{folder: folder, fset: token.NewFileSet(), files: map[string]*ast.File{}, texts: map[string][]byte{}}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(read.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		read.files[filepath.Base(path)], read.texts[filepath.Base(path)] = f, text
	}
	s.read[folder] = read
	return read, nil
}

func (s *source) paths() []string { return slices.Sorted(maps.Keys(s.files)) }

// decls goes through the declarations, each with its file.
func (s *source) decls(see func(f *ast.File, d ast.Decl)) {
	for _, name := range s.paths() {
		for _, d := range s.files[name].Decls {
			see(s.files[name], d)
		}
	}
}

// typ finds a type with its comment and the file in which it stands.
func (s *source) typ(name string) (found *ast.TypeSpec, doc string, in *ast.File) {
	s.decls(func(f *ast.File, d ast.Decl) {
		d2, ok := d.(*ast.GenDecl)
		if !ok || d2.Tok != token.TYPE {
			return
		}
		for _, spec := range d2.Specs {
			if spec := spec.(*ast.TypeSpec); spec.Name.Name == name {
				found, doc, in = spec, d2.Doc.Text(), f
				if spec.Doc != nil {
					doc = spec.Doc.Text()
				}
			}
		}
	})
	return found, doc, in
}

// methods are the exported ones of the type, in the order of their files.
func (s *source) methods(name string) (found []method) {
	s.decls(func(f *ast.File, d ast.Decl) {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil || !fn.Name.IsExported() {
			return
		}
		recv := fn.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		if id, ok := recv.(*ast.Ident); ok && id.Name == name {
			found = append(found, method{fn, f})
		}
	})
	return found
}

type method struct {
	*ast.FuncDecl
	in *ast.File
}

// abilities are the methods of all interfaces of the package.
func (s *source) abilities() map[string]bool {
	names := map[string]bool{}
	s.decls(func(_ *ast.File, d ast.Decl) {
		d2, ok := d.(*ast.GenDecl)
		if !ok || d2.Tok != token.TYPE {
			return
		}
		for _, spec := range d2.Specs {
			if t, ok := spec.(*ast.TypeSpec).Type.(*ast.InterfaceType); ok {
				for _, m := range t.Methods.List {
					for _, id := range m.Names {
						names[id.Name] = true
					}
				}
			}
		}
	})
	return names
}

// A constant of a type, with what stands behind it.
type constant struct{ name, value, comment string }

// constants are the exported ones of the type.
func (s *source) constants(typ string) (found []constant) {
	s.decls(func(_ *ast.File, d ast.Decl) {
		d2, ok := d.(*ast.GenDecl)
		if !ok || d2.Tok != token.CONST {
			return
		}
		for _, spec := range d2.Specs {
			spec := spec.(*ast.ValueSpec)
			id, ok := spec.Type.(*ast.Ident)
			if !ok || id.Name != typ || len(spec.Values) != 1 {
				continue
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && spec.Names[0].IsExported() {
				found = append(found, constant{spec.Names[0].Name, lit.Value, strings.TrimSpace(spec.Comment.Text())})
			}
		}
	})
	return found
}

// exports are the names of types, constants and variables that the package exports.
func (s *source) exports() map[string]bool {
	names := map[string]bool{}
	s.decls(func(_ *ast.File, d ast.Decl) {
		if d, ok := d.(*ast.GenDecl); ok {
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names[id.Name] = true
					}
				}
			}
		}
	})
	return names
}

// importsOf are the packages that the file imports, by the name that they have in it.
func importsOf(f *ast.File) map[string]string {
	named := map[string]string{}
	for _, spec := range f.Imports {
		importPath, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		named[name] = importPath
	}
	return named
}
