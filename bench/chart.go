package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// theme is the colours of a chart on a light or a dark page.
type theme struct {
	name      string
	page      color.Color
	ink, bar  color.Color
	ours      color.Color // of subjects that are snapfs
	gridlines color.Color
}

var themes = []theme{
	{"light", color.White, color.Gray{0x24}, color.RGBA{0x8a, 0x99, 0xab, 0xff}, color.RGBA{0x0b, 0x6e, 0x4f, 0xff}, color.Gray{0xd8}},
	{"dark", color.RGBA{0x0d, 0x11, 0x17, 0xff}, color.Gray{0xe0}, color.RGBA{0x6b, 0x7a, 0x8c, 0xff}, color.RGBA{0x3d, 0xc9, 0x95, 0xff}, color.Gray{0x44}},
}

// drawAll draws each charted metric of each case, a bar per subject, the best at the top.
func (r *report) drawAll(dir string) error {
	for _, c := range r.cases() {
		if r.transposed {
			if err := r.drawRatios(dir, c); err != nil {
				return err
			}
			continue
		}
		for _, name := range r.charts {
			var bars []metric
			for _, m := range r.ofCase(c) {
				if m.Name == name {
					bars = append(bars, m)
				}
			}
			if len(bars) < 2 {
				continue
			}
			for _, t := range themes {
				file := fmt.Sprintf("%s-%s-%s-%s.svg", r.Suite, fileName(c), fileName(name), t.name)
				if err := drawBars(filepath.Join(dir, file), c+": "+name, bars, t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}

func drawBars(path, title string, bars []metric, t theme) error {
	bars = slices.Clone(bars)
	slices.SortStableFunc(bars, func(a, b metric) int { // the last is drawn at the top
		less := 0
		if a.Value < b.Value {
			less = 1
		} else if a.Value > b.Value {
			less = -1
		}
		if a.More {
			return -less
		}
		return less
	})
	p := plot.New()
	p.BackgroundColor = t.page
	p.Title.Text, p.Title.TextStyle.Color = title+" ("+bars[0].Unit+")", t.ink
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Label.Color, a.Tick.Color = t.ink, t.ink, t.ink, t.ink
	}
	p.X.Min = 0
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, t.gridlines
	p.Add(grid)
	names := make([]string, len(bars))
	labels := plotter.XYLabels{}
	for i, m := range bars {
		names[i] = m.Subject
		values := make(plotter.Values, len(bars))
		values[i] = m.Value
		b, err := plotter.NewBarChart(values, vg.Points(14))
		if err != nil {
			return fmt.Errorf("draw %s: %w", path, err)
		}
		b.Horizontal, b.LineStyle.Width, b.Color = true, 0, t.bar
		if strings.HasPrefix(m.Subject, "snapfs") {
			b.Color = t.ours
		}
		p.Add(b)
		labels.XYs = append(labels.XYs, plotter.XY{X: m.Value, Y: float64(i)})
		labels.Labels = append(labels.Labels, " "+figure(m.Value))
		p.X.Max = max(p.X.Max, m.Value*1.12) // room for the figure
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	for i := range text.TextStyle {
		text.TextStyle[i].Color, text.TextStyle[i].YAlign = t.ink, draw.YCenter
	}
	p.Add(text)
	p.NominalY(names...)
	if err := p.Save(18*vg.Centimeter, vg.Length(len(bars))*0.75*vg.Centimeter+3*vg.Centimeter, path); err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}
