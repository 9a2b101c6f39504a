package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// Plot draws the figures: a panel of rates for each store, and one of waits. The extension of the file, .svg or .png, sets the
// format.
func (r *Report) Plot(path string) error {
	panels, err := r.panels()
	if err != nil {
		return err
	}
	if len(panels) == 0 {
		return fmt.Errorf("there are no figures to draw into %s", path)
	}
	rows := make([][]*plot.Plot, len(panels))
	heights := vg.Length(0)
	for i, p := range panels {
		rows[i] = []*plot.Plot{p.Plot}
		heights = max(heights, p.height)
	}
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	canvas, err := draw.NewFormattedCanvas(24*vg.Centimeter, heights*vg.Length(len(panels)), format)
	if err != nil {
		return fmt.Errorf("drawing %s: %w: name it .svg or .png", path, err)
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Millimeter * 6, PadTop: vg.Millimeter * 4, PadBottom: vg.Millimeter * 4,
		PadLeft: vg.Millimeter * 4, PadRight: vg.Millimeter * 6}
	surface := draw.New(canvas)
	surface.SetColor(color.White)
	surface.Fill(surface.Rectangle.Path())
	for i, tile := range plot.Align(rows, tiles, surface) {
		rows[i][0].Draw(tile[0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

// A panel is a plot with the height that it needs.
type panel struct {
	*plot.Plot
	height vg.Length
}

func (r *Report) panels() ([]panel, error) {
	var all []panel
	for _, stores := range [][]string{{peer.Postgres}, {peer.SQLite}, {peer.Memory, peer.Redis}} {
		var peers []Peer
		for _, store := range stores {
			peers = append(peers, r.on(store)...)
		}
		p, err := r.rates(strings.Join(stores, " and "), peers)
		if err != nil {
			return nil, err
		}
		if p.Plot != nil {
			all = append(all, p)
		}
	}
	for _, lone := range []bool{false, true} {
		p, err := r.waits(lone)
		if err != nil {
			return nil, err
		}
		if p.Plot != nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// rates has a line for each scenario, from the top, and a mark with its spread for each peer. The scale is logarithmic.
func (r *Report) rates(title string, peers []Peer) (panel, error) {
	var scenarios []string
	for _, s := range slices.Backward(rounds.Scenarios()) {
		played := func(p Peer) bool { return r.figure(p.ID(), s.Name).runs > 0 }
		if !s.Paced() && slices.ContainsFunc(peers, played) {
			scenarios = append(scenarios, s.Name)
		}
	}
	if len(scenarios) == 0 {
		return panel{}, nil
	}
	p := logarithmic(title+": jobs per second, median and spread", scenarios)
	for i, of := range peers {
		var marks spread
		for y, scenario := range scenarios {
			if f := r.figure(of.ID(), scenario); f.runs > 0 {
				marks.add(f.median, f.low, f.top, float64(y)+offset(i, len(peers)))
			}
		}
		if err := marks.draw(p, label(of), i, of); err != nil {
			return panel{}, err
		}
	}
	return roomy(p), nil
}

// waits has a line for each peer, with the three percentiles, or one for each scenario of lone jobs and each peer.
func (r *Report) waits(lone bool) (panel, error) {
	var names []string
	var figures []figure
	for _, s := range slices.Backward(rounds.Scenarios()) {
		if !s.Paced() || s.Lone() != lone {
			continue
		}
		for _, p := range slices.Backward(r.Peers) {
			name := p.Name + ", " + p.Store
			if lone {
				name = p.Name + ", " + s.Name
			}
			if f := r.figure(p.ID(), s.Name); f.runs > 0 {
				names, figures = append(names, name), append(figures, f)
			}
		}
	}
	if len(names) == 0 {
		return panel{}, nil
	}
	title := "latency at a small load"
	if lone {
		title = "lone jobs, enqueued by another process"
	}
	p := logarithmic(title+": milliseconds to the start of the handler", names)
	for i, name := range []string{"p50", "p95", "p99"} {
		var marks spread
		for y, f := range figures {
			marks.add(f.waits[i], f.waits[i], f.waits[i], float64(y))
		}
		if err := marks.draw(p, name, i, Peer{}); err != nil {
			return panel{}, err
		}
	}
	return roomy(p), nil
}

const height = 11 * vg.Centimeter

// roomy returns the panel of a finished plot, with margins so that no mark lies on the border or under the legend.
func roomy(p *plot.Plot) panel {
	p.X.Min /= 1.3
	p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.2)
	return panel{p, height}
}

func label(p Peer) string {
	if p.Store == peer.Redis {
		return p.Name + " (redis)"
	}
	return p.Name
}

// offset keeps the marks of one line apart.
func offset(i, of int) float64 { return (float64(of-1)/2 - float64(i)) * 0.7 / float64(of) }

// logarithmic returns an empty plot with a logarithmic scale and names for its lines.
func logarithmic(title string, lines []string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = decades{}
	p.NominalY(lines...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(lines))-0.4
	grid := plotter.NewGrid()
	grid.Horizontal.Dashes = []vg.Length{vg.Millimeter / 2, vg.Millimeter}
	p.Add(grid)
	p.Legend.Top = true
	p.Legend.XOffs = -vg.Millimeter * 2
	p.Legend.Padding = vg.Millimeter
	return p
}

// decades are ticks at 1, 10, 100 and so on, with plain numbers, and minor ticks between them.
type decades struct{}

func (decades) Ticks(low, top float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= top; decade *= 10 {
		for step := 1; step < 10; step++ {
			value := decade * float64(step)
			if value < low || value > top {
				continue
			}
			text := ""
			if step == 1 {
				text = Thousands(value)
				if value < 1 {
					text = fmt.Sprint(value)
				}
			}
			ticks = append(ticks, plot.Tick{Value: value, Label: text})
		}
	}
	return ticks
}

// A spread is points with error bars to the left and the right.
type spread struct {
	plotter.XYs
	plotter.XErrors
}

func (s *spread) add(median, low, top, y float64) {
	s.XYs = append(s.XYs, plotter.XY{X: median, Y: y})
	s.XErrors = append(s.XErrors, struct{ Low, High float64 }{low - median, top - median})
}

// Colour-blind people can distinguish these colors; the shapes help too.
var (
	colors = []color.Color{
		color.RGBA{R: 213, G: 94, B: 0, A: 255}, color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 0, G: 158, B: 115, A: 255},
		color.RGBA{R: 204, G: 121, B: 167, A: 255}, color.RGBA{R: 230, G: 159, B: 0, A: 255}, color.RGBA{R: 86, G: 180, B: 233, A: 255},
	}
	shapes = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{},
	}
)

// draw adds the points to the plot and its legend. The limit is always a grey cross.
func (s *spread) draw(p *plot.Plot, name string, i int, of Peer) error {
	if len(s.XYs) == 0 {
		return nil
	}
	points, err := plotter.NewScatter(s.XYs)
	if err != nil {
		return err
	}
	errors, err := plotter.NewXErrorBars(s)
	if err != nil {
		return err
	}
	points.Color, points.Shape, points.Radius = colors[i%len(colors)], shapes[i%len(shapes)], vg.Points(4)
	if of.Name == limit {
		points.Color, points.Shape = color.Gray{Y: 90}, draw.CrossGlyph{}
	}
	errors.Color = points.Color
	p.Add(errors, points)
	p.Legend.Add(name, points)
	return nil
}
