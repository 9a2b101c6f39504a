package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond // often enough to see it move
)

// A progress is a line on a terminal that says how far long work is. Elsewhere it says nothing, nor does none at all.
type progress struct {
	to    io.Writer // nil where nobody watches
	drawn time.Time
}

func (a *app) progress() *progress {
	if !isTerminal(a.std.err) {
		return &progress{}
	}
	return &progress{to: a.std.err}
}

// show draws the bar. Without a whole, which may not be known, it is the text alone.
func (p *progress) show(part, whole int64, format string, args ...any) {
	if p == nil || p.to == nil || time.Since(p.drawn) < barEvery {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.to, "\r\x1b[K%s%s", bar(part, whole), fmt.Sprintf(format, args...))
}

// end takes the line away.
func (p *progress) end() {
	if p != nil && p.to != nil && !p.drawn.IsZero() {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

func bar(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	full := int(barWidth * min(part, whole) / whole)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] "
}
