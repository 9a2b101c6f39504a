package enginetest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/enginetest"
)

// Every case quotes package kv word by word.
func TestCasesQuoteTheInterface(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../kv/engine.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var text strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		if group, is := n.(*ast.CommentGroup); is {
			text.WriteString(group.Text() + " ")
		}
		return true
	})
	whole := spaces.ReplaceAllString(text.String(), " ")
	names := map[string]bool{}
	for _, k := range enginetest.Cases() {
		assert.False(t, names[k.Name], "two cases are called %s", k.Name)
		names[k.Name] = true
		for sentence := range strings.Lines(k.Sentence) {
			assert.Contains(t, whole, strings.TrimSpace(sentence), k.Name)
		}
	}
}

var spaces = regexp.MustCompile(`\s+`)
