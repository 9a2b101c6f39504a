package browser

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

var screenshots = flag.String("screenshots", "", "the folder to write pictures of the pages to")

// TestScreenshots writes the pictures of docs, from a run of real workers on a store with a past: make screenshots.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("it checks nothing and writes pictures: make screenshots")
	}
	s := alive(t, options{store: original(t), tokens: true})
	eventually(t, "workers that say what they run", func() (bool, string) {
		workers, err := s.Workers(t.Context())
		require.NoError(t, err)
		return slices.ContainsFunc(workers, func(w jq.Worker) bool { return w.Name == "mail-1" && w.Running == 2 }), fmt.Sprint(workers)
	})
	all := map[string]view{}
	for _, v := range views(s) {
		all[v.name] = v
	}
	p := open(t, s.url, desk).sessionless()
	p.visit("/")
	p.find(button("Sign in"))
	p.picture("login", desk)
	p.signIn(s.token["ada"])
	for _, one := range []struct {
		file, view string
		look       look
	}{
		{"overview", "overview", desk},
		{"jobs", "jobs-dead", desk},
		{"job", "job-recovered", desk},
		{"failures", "failures", desk},
		{"queues", "queues", desk},
		{"queue", "queue", desk},
		{"schedules", "schedules", desk},
		{"schedule", "schedule", desk},
		{"workers", "workers", desk},
		{"worker", "worker", desk},
		{"enqueue", "enqueue", desk},
		{"overview-dark", "overview", night},
		{"job-dark", "job-recovered", night},
		{"overview-phone", "overview", look{width: phone.width, height: 1500}},
		{"job-phone", "job-recovered", look{width: phone.width, height: 1200}},
	} {
		p.show(one.look)
		p.see(all[one.view])
		eventually(t, "counts", func() (bool, string) {
			return eval[bool](p, `!document.body.innerText.includes("being counted")`), p.text()
		})
		p.picture(one.file, one.look)
	}
	p.show(desk)
	p.visit("/docs")
	p.shows("/v1/jobs")
	p.picture("api", desk)
}

// picture writes a picture of the page, down to its end or a little beyond the height of the window.
func (p *tab) picture(name string, l look) {
	p.t.Helper()
	height := eval[int64](p, `document.documentElement.scrollHeight`)
	p.show(look{dark: l.dark, width: l.width, height: min(max(height, l.height), l.height+220)})
	eval[bool](p, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	var shot []byte
	p.call(func(ctx context.Context) (err error) {
		shot, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
		return err
	})
	full, err := png.Decode(bytes.NewReader(shot))
	require.NoError(p.t, err)
	var small bytes.Buffer
	require.NoError(p.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced(full)))
	require.NoError(p.t, os.MkdirAll(*screenshots, 0o755))
	require.NoError(p.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), small.Bytes(), 0o644))
	p.show(l)
}

// reduced returns the picture with its 256 most frequent colours. The other colours of a page are those at the edges of letters, and
// become the nearest of these.
func reduced(full image.Image) image.Image {
	bounds := full.Bounds()
	times := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			times[at(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(times), func(a, b color.RGBA) int {
		return cmp.Or(times[b]-times[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range frequent[:min(256, len(frequent))] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range times {
		index[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return small
}
