package soak

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// values are 90 of them, made of their number.
func values(of func(i int) float64) []float64 {
	all := make([]float64, 90)
	for i := range all {
		all[i] = of(i)
	}
	return all
}

func flat(i int) float64 { return 100 + float64(i%7) }

func leak(i int) float64 { return 100 + float64(i) }

// hump grows while a snapshot is held, from a third to two thirds, and keeps what it has then.
func hump(i int) float64 { return 100 + 10*float64(min(max(i-30, 0), 30)) }

func TestJudge(t *testing.T) {
	for name, k := range map[string]struct {
		of    func(i int) float64
		bound Bound
		ok    bool
	}{
		"Flat":                  {flat, Bound{Times: 1.3}, true},
		"Leak":                  {leak, Bound{Times: 1.3}, false},
		"LeakLate":              {leak, Bound{Times: 1.05, Late: true}, false},
		"HumpIsNoLeak":          {hump, Bound{Times: 1.05, Late: true}, true},
		"Hump":                  {hump, Bound{Times: 1.3}, false},
		"GrowsBeyondItsNoise":   {func(i int) float64 { return float64(i) / 10 }, Bound{Times: 1, Plus: 5}, false},
		"NoiseOfSmallFigures":   {func(i int) float64 { return float64(i % 5) }, Bound{Times: 1, Plus: 5}, true},
		"SlowerAndSlower":       {func(i int) float64 { return 100 - float64(i) }, Bound{Times: 0.5, Least: true}, false},
		"AsQuickAsBefore":       {flat, Bound{Times: 0.5, Least: true}, true},
		"OneOutlier":            {func(i int) float64 { return map[bool]float64{true: 1e6, false: 1}[i == 80] }, Bound{Times: 1.3}, true},
		"WhatHasNoBoundIsShown": {leak, Bound{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			good := Series{Name: "good", Values: values(flat), Bound: Bound{Times: 2}}
			run := Run{Series: []Series{good, {Name: "it", Values: values(k.of), Bound: k.bound}, good}}
			lines, ok := run.Judge()
			assert.Equal(t, k.ok, ok, lines)
			assert.Len(t, lines, 3)
		})
	}
	_, ok := (&Run{Series: []Series{{Name: "few", Values: []float64{1, 1}}}}).Judge()
	assert.False(t, ok, "what has hardly been measured is not judged well")
}

func TestWritten(t *testing.T) {
	run := Run{Store: "SQLite", Series: []Series{{Name: "memory", Unit: "MB", Values: values(leak)}, {Name: "none", Unit: "rows", Values: make([]float64, 90)}}}
	for i := range 90 {
		run.Times = append(run.Times, time.Duration(i)*time.Second)
	}
	run.Held = [2]time.Duration{30 * time.Second, time.Minute}
	folder := t.TempDir()
	require.NoError(t, run.WriteCSV(filepath.Join(folder, "run.csv")))
	require.NoError(t, run.WriteSVG(filepath.Join(folder, "run.svg")))
	f, err := os.Open(filepath.Join(folder, "run.csv"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, []string{"seconds", "memory (MB)", "none (rows)"}, rows[0])
	assert.Equal(t, []string{"89.00", "189", "0"}, rows[90])

	drawn, err := os.Open(filepath.Join(folder, "run.svg"))
	require.NoError(t, err)
	defer func() { _ = drawn.Close() }()
	curves := 0
	for d := xml.NewDecoder(drawn); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			curves++
		}
	}
	assert.Equal(t, 2, curves)
}
