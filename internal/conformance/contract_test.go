package conformance_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
)

var update = flag.Bool("update", false, "rewrite docs/contract.md")

// Every case quotes the contract word by word, so that a failing author reads the sentence that was broken.
func TestCasesQuoteTheContract(t *testing.T) {
	text := strings.Join(contractComments(t), " ")
	names := map[string]bool{}
	for _, g := range conformance.Groups() {
		for _, k := range g.Cases {
			assert.True(t, strings.HasPrefix(k.Name, g.Name+"/"), "%s stands in group %s", k.Name, g.Name)
		}
	}
	for _, k := range conformance.Cases() {
		assert.False(t, names[k.Name], "the name %s is used twice", k.Name)
		names[k.Name] = true
		assert.NotEmpty(t, k.Sentence, "%s quotes nothing", k.Name)
		for sentence := range strings.SplitSeq(k.Sentence, "\n") {
			assert.Contains(t, text, sentence, "%s quotes what the contract does not say", k.Name)
		}
	}
}

// Every sentence of the contract has a case, or a reason why it needs none.
func TestSentencesHaveCases(t *testing.T) {
	var quoted []string
	for _, k := range conformance.Cases() {
		quoted = append(quoted, strings.Split(k.Sentence, "\n")...)
	}
	used := map[string]bool{}
	for _, sentence := range contractSentences(t) {
		proved := slices.ContainsFunc(quoted, func(quote string) bool {
			return strings.Contains(sentence, quote) || strings.Contains(quote, sentence)
		})
		_, excused := unproved[sentence]
		used[sentence] = excused
		switch {
		case !proved && !excused:
			t.Errorf("no case quotes: %s", sentence)
		case proved && excused:
			t.Errorf("has a case and is excused all the same: %s", sentence)
		}
	}
	for sentence := range unproved {
		assert.True(t, used[sentence], "excused, but not in the contract: %s", sentence)
	}
}

// docs/contract.md shows the cases as the code has them.
func TestContractPageIsUpToDate(t *testing.T) {
	doc := contractDoc()
	path := filepath.Join("..", "..", "docs", "contract.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(doc), 0o644))
	}
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(kept), doc, "docs/contract.md is out of date: go test ./internal/conformance -run Contract -update")
}

// contractDoc is docs/contract.md as the code has it.
func contractDoc() string {
	var b strings.Builder
	b.WriteString(contractHead)
	for _, tr := range store.Transitions {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", tr.Op, phases(tr.From), tr.Guard, phases(tr.To), tr.Token, tr.Attempts, tr.Retries, tr.Also)
	}
	b.WriteString(groupsHead)
	for _, g := range conformance.Groups() {
		var names []string
		for _, k := range g.Cases {
			names = append(names, strings.TrimPrefix(k.Name, g.Name+"/"))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.Name, g.About, strings.Join(names, "<br>"))
	}
	b.WriteString(unprovedHead)
	for _, sentence := range slices.Sorted(maps.Keys(unproved)) {
		fmt.Fprintf(&b, "| %s | %s |\n", sentence, unproved[sentence])
	}
	return b.String()
}

func phases(list []store.State) string {
	var names []string
	for _, s := range list {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// contractFiles are the files of package store whose comments are promises.
var contractFiles = []string{"doc.go", "store.go"}

// contractComments returns the comments of package store, each with its white space made single.
func contractComments(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "store", "*.go"))
	require.NoError(t, err)
	var texts []string
	for _, file := range files {
		for _, group := range comments(t, file) {
			texts = append(texts, strings.Join(strings.Fields(group.Text()), " "))
		}
	}
	return texts
}

func comments(t *testing.T, file string) []*ast.CommentGroup {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	return parsed.Comments
}

// contractSentences returns every sentence of the promises: those of the running text, and the rows of the tables of
// outcomes. Drawings and headings are neither.
func contractSentences(t *testing.T) []string {
	t.Helper()
	var sentences []string
	for _, file := range contractFiles {
		for _, group := range comments(t, filepath.Join("..", "store", file)) {
			for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
				sentences = append(sentences, paragraphSentences(paragraph)...)
			}
		}
	}
	return sentences
}

var outcomeRow = regexp.MustCompile(`^\t[a-z_]+ {2,}\S`)

func paragraphSentences(paragraph string) []string {
	if strings.HasPrefix(paragraph, "#") {
		return nil
	}
	var sentences []string
	if strings.HasPrefix(paragraph, "\t") {
		for line := range strings.SplitSeq(strings.Trim(paragraph, "\n"), "\n") {
			if outcomeRow.MatchString(line) {
				sentences = append(sentences, strings.Join(strings.Fields(line), " "))
			}
		}
		return sentences
	}
	text := strings.Join(strings.Fields(paragraph), " ")
	for text != "" {
		end := len(text)
		if at := strings.Index(text, ". "); at >= 0 {
			end = at + 1
		}
		sentences = append(sentences, text[:end])
		text = strings.TrimSpace(text[end:])
	}
	return sentences
}
