package outside

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A head keeps the beginning of what is written to it and discards the rest. It never makes the writer wait.
type head struct {
	limit int
	bytes []byte
	cut   bool // more was written than is kept
}

func (h *head) Write(p []byte) (int, error) {
	kept := p[:min(len(p), h.limit-len(h.bytes))]
	h.bytes = append(h.bytes, kept...)
	h.cut = h.cut || len(kept) < len(p)
	return len(p), nil
}

// text returns the kept part as valid UTF-8, with a mark if the rest was cut off.
func (h *head) text() string {
	if !h.cut {
		return clean(h.bytes)
	}
	return clean(h.bytes) + " … (cut)"
}

// A tail keeps the end of what is written to it.
type tail struct {
	limit int
	bytes []byte
	cut   bool // more was written than is kept
}

func (t *tail) Write(p []byte) (int, error) {
	t.bytes = append(t.bytes, p[max(0, len(p)-t.limit):]...)
	if len(p) > t.limit || len(t.bytes) > t.limit {
		t.cut = true
		t.bytes = append(t.bytes[:0], t.bytes[max(0, len(t.bytes)-t.limit):]...)
	}
	return len(p), nil
}

// text returns the kept part as valid UTF-8, with a mark if the rest was cut off.
func (t *tail) text() string {
	if !t.cut {
		return clean(t.bytes)
	}
	from := 0
	for from < len(t.bytes) && !utf8.RuneStart(t.bytes[from]) {
		from++ // the rest of a character whose beginning is gone
	}
	return "(cut) … " + clean(t.bytes[from:])
}

// clean returns the text as valid UTF-8 without surrounding blanks, to be read by people.
func clean(text []byte) string {
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD"))
}

// longestLine is how much of a line is logged, in bytes.
const longestLine = 1 << 10

// lines calls tell for each line that is written to it.
type lines struct {
	tell func(line string)
	line head
}

func newLines(tell func(line string)) *lines { return &lines{tell, head{limit: longestLine}} }

func (l *lines) Write(p []byte) (int, error) {
	for rest := p; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		_, _ = l.line.Write(line) // a head accepts everything
		if !ended {
			return len(p), nil
		}
		l.flush()
		rest = after
	}
}

// flush calls tell for the line that was written so far, unless it is empty.
func (l *lines) flush() {
	if text := l.line.text(); text != "" {
		l.tell(text)
	}
	l.line.bytes, l.line.cut = l.line.bytes[:0], false
}
