package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// row writes one line of a table. Cells come from anywhere, so that they may hold what a terminal takes for a command.
func row(table io.Writer, cells ...any) {
	for i, cell := range cells {
		text := printable(fmt.Sprint(cell))
		if text == "" {
			text = "-"
		}
		if i > 0 {
			text = "\t" + text
		}
		fmt.Fprint(table, text)
	}
	fmt.Fprintln(table)
}

// printable is the text in one line, with everything that is not to be seen written as in Go.
func printable(text string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if !strings.ContainsFunc(text, odd) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// cut is the first line of the text, and of that what fits a column.
func cut(text string, most int) string {
	first, _, more := strings.Cut(text, "\n")
	if runes := []rune(first); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	if more {
		first += " …"
	}
	return first
}

// moment is a time for people, in seconds. What is not set is empty.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// span is a duration for people: not finer than a millisecond, nor than a second where it is longer than a minute.
func span(d time.Duration) string {
	if d > time.Minute {
		return d.Truncate(time.Second).String()
	}
	return d.Truncate(time.Millisecond).String()
}

// document is a JSON document for people: indented on a terminal, where it holds nothing that a terminal would obey either.
func (a *app) document(doc []byte) string {
	if !isTerminal(a.std.out) {
		return string(doc)
	}
	return pretty(doc)
}

func pretty(doc []byte) string {
	var text bytes.Buffer
	if json.Indent(&text, doc, "  ", "  ") != nil {
		return printable(string(doc))
	}
	var safe strings.Builder
	for _, r := range text.String() {
		if r == '\n' || unicode.IsPrint(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	return safe.String()
}

// plural is a count of jobs in words.
func plural(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return strconv.FormatInt(n, 10) + " jobs"
}
