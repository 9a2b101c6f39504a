package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutputEscapesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"plain – é 日本":    "plain – é 日本",
		"a\tb\nc\x1b[2J":  `a\tb\nc\x1b[2J`,
		"csi \u009b2J":    `csi \u009b2J`,
		"turn \u202e":     `turn \u202e`,
		"half \xff":       `half \xff`,
		`say "hi"` + "\a": `say "hi"\a`,
	} {
		assert.Equal(t, want, printable(text))
	}
	want := "{\n    \"a\": [\n      \"\\u009b\\u202e\\udb40\\udc01é\"\n    ]\n  }"
	got := pretty([]byte("{\"a\":[\"\u009b\u202e\U000e0001é\"]}"))
	assert.Equal(t, strings.Split(want, "\n"), strings.Split(got, "\n"))
}

func TestProgressIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	for _, nobody := range []*progress{nil, {}} {
		nobody.show(1, 2, "half")
		nobody.end()
	}
	somebody := &progress{to: &out}
	somebody.show(1, 2, "%d of %d", 1, 2)
	somebody.show(2, 2, "too soon to draw")
	somebody.end()
	assert.Equal(t, "\r\x1b[K[###############...............] 1 of 2\r\x1b[K", out.String())
	assert.Empty(t, bar(5, 0), "an unknown total")
	assert.Equal(t, "["+strings.Repeat("#", barWidth)+"] ", bar(7, 5), "more than the total")
}

func TestProgressShowsTheCurrentMigration(t *testing.T) {
	var out bytes.Buffer
	bar := &progress{to: &out}
	bar.migrating(2, 3)
	bar.end()
	assert.Equal(t, "\r\x1b[K[##########....................] migration 2 of 3\r\x1b[K", out.String())
}

func TestOnlyYesConfirms(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " yes": true, "n\n": false, "\n": false, "": false, "yo\n": false} {
		var out bytes.Buffer
		sure, err := ask(strings.NewReader(answer), &out, "remove 3 jobs")
		require.NoError(t, err)
		assert.Equal(t, want, sure, "%q", answer)
		assert.True(t, strings.HasPrefix(out.String(), "remove 3 jobs? [y/N] "))
	}
}

// Ctrl-C ends a command that waits for input.
func TestInputEndsWithItsContext(t *testing.T) {
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	in := &input{ctx: ctx, from: from}
	go func() { _, _ = to.Write([]byte("some")) }()
	text := make([]byte, 3)
	n, err := in.Read(text)
	require.NoError(t, err)
	assert.Equal(t, "som", string(text[:n]))
	n, err = in.Read(text)
	require.NoError(t, err)
	assert.Equal(t, "e", string(text[:n]))
	cancel()
	_, err = in.Read(text)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, to.Close()) // ends the blocked read
}

func TestInputIsReadToItsEnd(t *testing.T) {
	text := strings.Repeat("0123456789", 20_000)
	got, err := readAtMost(&input{ctx: t.Context(), from: strings.NewReader(text)}, len(text))
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
	_, err = readAtMost(strings.NewReader(text), len(text)-1)
	assert.ErrorContains(t, err, "longer than 199999 bytes")
}

func TestSpansAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234567 * time.Nanosecond: "1ms", 1500 * time.Millisecond: "1.5s", 90*time.Minute + 1234567*time.Microsecond: "1h30m1s",
	} {
		assert.Equal(t, want, span(d))
	}
}
