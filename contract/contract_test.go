package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Package contract exports all that package store does, so that a store elsewhere needs no other package.
func TestEverythingOfTheContractCanBeReached(t *testing.T) {
	reachable := exported(t, ".")
	for name := range exported(t, "../internal/store") {
		if inside[name] == "" {
			assert.True(t, reachable[name], "%s is not exported by jq/contract", name)
		}
	}
}

// inside is what nobody outside needs, and why.
var inside = map[string]string{
	"Op": made, "OpClaim": made, "OpExtend": made, "OpSave": made, "OpAck": made, "OpFail": made, "OpNever": made, "OpAfter": made, "OpSnooze": made,
	"OpRelease": made, "OpRecover": made, "OpCancel": made, "OpRequeue": made, "OpReschedule": made, "OpDelete": made, "OpUnblock": made, "Change": made, "Same": made, "Plus": made,
	"Minus": made, "Reset": made, "Gone": made, "Transition": made, "Transitions": made,

	"JobJSON": sent, "JobDetailJSON": sent, "NewJobJSON": sent, "WaitJSON": sent, "BackoffJSON": sent, "PolicyJSON": sent, "RateJSON": sent, "WorkerJSON": sent, "FilterJSON": sent,
	"IDJSON": sent, "DurationJSON": sent, "RetentionJSON": sent, "TimeJSON": sent, "KeepJSON": sent, "JSONOfJob": sent, "JSONOfDetail": sent, "JSONOfPolicy": sent,
	"JSONOfNewJob": sent, "JSONOfFilter": sent, "ActivityPageJSON": sent, "JSONOfActivity": sent, "SplitDocument": sent, "JoinDocument": sent, "Wanted": sent,

	"FitOneCall": "cuts what a client adds: stores get single calls",
	"Explained":  "an error in jq's own words: other programs have theirs",
}

const made = "the table of transitions: documentation and tests are made from it"

const sent = "what HTTP sends: encoding/json writes and reads the contract's own types in the same way"

// exported are the names that a package exports, methods apart.
func exported(t *testing.T, folder string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	names := map[string]bool{}
	note := func(id *ast.Ident) {
		if id.IsExported() {
			names[id.Name] = true
		}
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			declared(d, note)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// declared notes the names that stand in a declaration.
func declared(d ast.Decl, note func(*ast.Ident)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			note(d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				note(s.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					note(id)
				}
			}
		}
	}
}
