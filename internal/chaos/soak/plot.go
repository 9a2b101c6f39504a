package soak

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The size of a panel and its margins, in pixels.
const (
	columns     = 2
	width       = 460
	height      = 150
	left, right = 64, 16
	top, bottom = 28, 26
	title       = 34
)

// WriteSVG draws a panel for each figure, with axes from zero. The time in which a snapshot was held open is grey.
func (r *Run) WriteSVG(path string) error {
	rows := (len(r.Series) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		columns*width, title+rows*height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	last := r.Times[len(r.Times)-1]
	head := r.Store + ", " + clock(last.Seconds())
	if r.Held[1] > r.Held[0] {
		head += "; grey: a snapshot is held open"
	}
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15">%s</text>`+"\n", left, head)
	for i, s := range r.Series {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*width, title+i/columns*height)
		r.panel(&b, s)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func (r *Run) panel(b *strings.Builder, s Series) {
	span := r.Times[len(r.Times)-1].Seconds()
	highest := max(slices.Max(s.Values), 1e-9)
	x := func(seconds float64) float64 { return left + seconds/span*(width-left-right) }
	y := func(value float64) float64 { return height - bottom - value/highest*(height-top-bottom) }
	if from, to := r.Held[0].Seconds(), r.Held[1].Seconds(); to > from {
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#e4e4e4"/>`+"\n", x(from), top, x(to)-x(from), height-top-bottom)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", left, top-8, s.label())
	for _, v := range []float64{0, highest / 2, highest} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#cccccc"/>`+"\n", left, width-right, y(v), y(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-6, y(v)+4, short(v))
	}
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(part*span), height-bottom+15, clock(part*span))
	}
	b.WriteString(`<polyline fill="none" stroke="#0072b2" stroke-width="1.3" points="`)
	for i, v := range s.Values {
		fmt.Fprintf(b, "%.1f,%.1f ", x(r.Times[i].Seconds()), y(v))
	}
	b.WriteString("\"/>\n")
}

// clock returns a time in minutes, or in seconds if it is short.
func clock(seconds float64) string {
	if seconds >= 180 {
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.0f s", seconds)
}
