package outside

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestHeadAndTailKeepTheirEndAndSaySo(t *testing.T) {
	for written, want := range map[string][2]string{
		"":                {"", ""},
		"ab\n":            {"ab", "ab"},
		"1234567890":      {"1234567890", "1234567890"},
		"12345678901":     {"1234567890 … (cut)", "(cut) … 2345678901"},
		"ab\xff":          {"ab\uFFFD", "ab\uFFFD"},
		"äöü12345äöü":     {"äöü1234 … (cut)", "(cut) … 2345äöü"},
		"1234567äöü12345": {"1234567ä\uFFFD … (cut)", "(cut) … öü12345"},
	} {
		h, tl := &head{limit: 10}, &tail{limit: 10}
		for _, chunk := range []int{1, 3, 100} {
			h.bytes, h.cut, tl.bytes, tl.cut = nil, false, nil, false
			for rest := written; rest != ""; rest = rest[min(chunk, len(rest)):] {
				_, _ = h.Write([]byte(rest[:min(chunk, len(rest))]))
				_, _ = tl.Write([]byte(rest[:min(chunk, len(rest))]))
			}
			assert.Equal(t, want, [2]string{h.text(), tl.text()}, "%q by %d", written, chunk)
			assert.True(t, utf8.ValidString(h.text()+tl.text()))
			assert.LessOrEqual(t, len(h.bytes)+len(tl.bytes), 20)
		}
	}
}

func TestLinesAreToldOneByOne(t *testing.T) {
	var told []string
	l := newLines(func(line string) { told = append(told, line) })
	for _, chunk := range []string{"one\ntw", "o\n\n  \nthr", "ee", "\r\n" + strings.Repeat("x", longestLine+1), "\nlast"} {
		n, err := l.Write([]byte(chunk))
		assert.NoError(t, err)
		assert.Equal(t, len(chunk), n)
	}
	assert.Len(t, told, 4)
	l.flush()
	assert.Equal(t, []string{"one", "two", "three", strings.Repeat("x", longestLine) + " … (cut)", "last"}, told)
}

func TestDocumentIsJSONWhateverWasWritten(t *testing.T) {
	for written, want := range map[string]string{
		"":                         ``,
		" \n":                      ``,
		"{\"a\":  1}\n":            `{"a":  1}`,
		"42\n":                     `42`,
		"null":                     `null`,
		"done\n":                   `"done"`,
		"  two\nlines\r\n\n":       `"  two\nlines"`,
		`{"a":1}{"b":2}`:           `"{\"a\":1}{\"b\":2}"`,
		"<b>&":                     `"<b>&"`,
		"\xff":                     `"\ufffd"`,
		"\"\xff\"":                 `"\"\ufffd\""`,
		strings.Repeat("[", 20000): `"` + strings.Repeat("[", 20000) + `"`,
	} {
		assert.Equal(t, want, string(document([]byte(written))), "%.40q", written)
	}
}
