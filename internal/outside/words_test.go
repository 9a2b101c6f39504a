package outside

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplitMakesTheWordsThatAShellWouldMake(t *testing.T) {
	for line, want := range map[string][]string{
		"prog":                           {"prog"},
		"  prog   a\tb ":                 {"prog", "a", "b"},
		`prog 'a b' "c d" e\ f`:          {"prog", "a b", "c d", "e f"},
		`prog "" ''`:                     {"prog", "", ""},
		`prog a'b'"c"`:                   {"prog", "abc"},
		`prog "a\"b\\c\d" '\n' \n`:       {"prog", `a"b\c\d`, `\n`, "n"},
		`prog '$HOME' "\$x" \$y '*' *.c`: {"prog", "$HOME", "$x", "$y", "*", "*.c"},
		`sh -c 'a | b; c && d > e &'`:    {"sh", "-c", "a | b; c && d > e &"},
		`prog --json={"a":1}`:            {"prog", "--json={a:1}"},
		`prog a=b ~ größe # a remark`:    {"prog", "a=b", "~", "größe"},
		"prog a \\\n b":                  {"prog", "a", "b"},
	} {
		words, err := split(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, words, line)
	}
}

func TestSplitRefusesWhatNeedsAShell(t *testing.T) {
	for line, want := range map[string]string{
		"":                  "jq: the command line is empty: name the program to run",
		" # a remark":       "jq: the command line is empty: name the program to run",
		"prog 'a":           `jq: the command line "prog 'a" can not be split into words: reached EOF without closing quote ` + "`'`",
		"a | b":             "more than one program",
		"a; b":              "more than one program",
		"a;":                "more than one program",
		"a\nb":              "more than one program",
		"a && b":            "more than one program",
		"a &":               "more than one program",
		"! a":               "more than one program",
		"a > b":             "more than one program",
		"(a)":               "more than one program",
		"if a; then b; fi":  "more than one program",
		"A=b prog":          "env NAME=value",
		"prog $HOME":        "a variable or another substitution",
		`prog "$HOME"`:      "a variable or another substitution",
		"prog $(date)":      "a variable or another substitution",
		"prog `date`":       "a variable or another substitution",
		`prog "a $((1+1))"`: "a variable or another substitution",
	} {
		words, err := split(line)
		assert.ErrorContains(t, err, want, line)
		assert.Nil(t, words, line)
	}
}
