package cli

import (
	"bytes"
	"cmp"
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

// row writes one line of a table. It escapes the cells, because they may contain control sequences for a terminal.
func row(table io.Writer, cells ...any) {
	for i, cell := range cells {
		text := cmp.Or(printable(fmt.Sprint(cell)), "-")
		if i > 0 {
			text = "\t" + text
		}
		fmt.Fprint(table, text)
	}
	fmt.Fprintln(table)
}

// printable returns the text on one line, with nonprintable characters escaped as in Go.
func printable(text string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if !strings.ContainsFunc(text, odd) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// cut returns the first line of the text, shortened to most characters.
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

// moment formats a time with seconds. The zero time is empty.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// span formats a duration, in milliseconds up to a minute and in seconds above.
func span(d time.Duration) string {
	if d > time.Minute {
		return d.Truncate(time.Second).String()
	}
	return d.Truncate(time.Millisecond).String()
}

// document formats a JSON document: on a terminal it is indented, and control characters are escaped.
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

// plural formats a number of jobs.
func plural(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return strconv.FormatInt(n, 10) + " jobs"
}
