package outside

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// split splits a command line into words as a shell does: blanks separate words, and quotes and backslashes keep them together.
// It does nothing else that a shell does. It refuses a line that needs a shell, for a pipe or a variable, because the program
// would get the characters themselves.
func split(line string) ([]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(line), "")
	if err != nil {
		if parse, ok := errors.AsType[syntax.ParseError](err); ok {
			return nil, fmt.Errorf("jq: the command line %q can not be split into words: %s", line, parse.Text)
		}
		return nil, fmt.Errorf("jq: the command line %q can not be split into words: %w", line, err)
	}
	if len(file.Stmts) == 0 {
		return nil, errors.New("jq: the command line is empty: name the program to run")
	}
	call, ok := simple(file.Stmts)
	if !ok {
		return nil, needsShell(line, "more than one program and its arguments")
	}
	if len(call.Assigns) > 0 {
		return nil, needsShell(line, "a variable, which goes by way of env NAME=value …")
	}
	var words []string
	for _, word := range call.Args {
		text, ok := literal(word.Parts, unquoted)
		if !ok {
			return nil, needsShell(line, "a variable or another substitution, which single quotes would keep as it stands")
		}
		words = append(words, text)
	}
	return words, nil
}

func needsShell(line, what string) error {
	return fmt.Errorf("jq: the command line %q has %s: no shell reads it, so ask for one, as in sh -c '…'", line, what)
}

// simple returns the command of the line, or false if the line is more than one simple command.
func simple(stmts []*syntax.Stmt) (*syntax.CallExpr, bool) {
	s := stmts[0]
	if len(stmts) > 1 || s.Negated || s.Background || s.Coprocess || len(s.Redirs) > 0 || s.Semicolon.IsValid() {
		return nil, false
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	return call, ok
}

// The characters that a backslash escapes.
const (
	unquoted = "" // any character
	doubled  = "\\\"$`"
)

// literal returns the text of a word without its quotes, or false if only a shell can tell the text.
func literal(parts []syntax.WordPart, escapable string) (string, bool) {
	var text strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text.WriteString(unescape(part.Value, escapable))
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", false
			}
			text.WriteString(part.Value)
		case *syntax.DblQuoted:
			inner, ok := literal(part.Parts, doubled)
			if !ok || part.Dollar {
				return "", false
			}
			text.WriteString(inner)
		default:
			return "", false
		}
	}
	return text.String(), true
}

func unescape(text, escapable string) string {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (escapable == unquoted || strings.IndexByte(escapable, text[i+1]) >= 0) {
			i++
		}
		plain.WriteByte(text[i])
	}
	return plain.String()
}
