package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond // redraw interval
)

// A progress draws a progress bar on a terminal. On other streams, and if it is nil, it prints nothing.
type progress struct {
	to    io.Writer // nil unless a terminal
	drawn time.Time
}

func (a *app) progress() *progress {
	if !isTerminal(a.std.err) {
		return &progress{}
	}
	return &progress{to: a.std.err}
}

// show draws the bar and the text. It omits the bar if whole is 0, which means unknown.
func (p *progress) show(part, whole int64, format string, args ...any) {
	if p == nil || p.to == nil || time.Since(p.drawn) < barEvery {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.to, "\r\x1b[K%s%s", bar(part, whole), fmt.Sprintf(format, args...))
}

// end erases the line.
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
