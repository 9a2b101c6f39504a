package kv_test

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

var exampleKeys = memkv.New()

// connect makes the engine of the example. It stands in this file, because nobody outside jq can import memkv.
func connect() kv.Engine { return exampleKeys.Connect() }

func TestExampleImportsOnlyWhatReadersCanImport(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ImportsOnly)
	require.NoError(t, err)
	require.NotEmpty(t, file.Imports)
	for _, i := range file.Imports {
		assert.NotContains(t, i.Path.Value, "/internal/")
	}
}
