package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sizeOf is the number that a case's name begins or ends with.
func sizeOf(name string) (float64, bool) {
	for _, word := range strings.Fields(name) {
		if n, err := strconv.ParseFloat(strings.ReplaceAll(word, ",", ""), 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// point is a figure at a size.
type point struct{ size, value float64 }

// Words by which the cases of one kind are known, besides their sizes.
const (
	filesCases = "files"
	depthCases = "depth"
)

// pointsOf are a subject's figures of a metric in all cases that are named with a word and a size, from the smallest on.
func pointsOf(r *report, subject, name, word string) []point {
	var points []point
	for _, m := range r.Metrics {
		if m.Subject != subject || m.Name != name || !slices.Contains(strings.Fields(m.Case), word) || m.Value <= 0 {
			continue
		}
		if n, ok := sizeOf(m.Case); ok {
			points = append(points, point{n, m.Value})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.size, b.size) })
	return points
}

// exponent fits value = c * size^e by least squares of the logarithms.
func exponent(points []point) (e float64, ok bool) {
	var sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log(p.size), math.Log(p.value)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	n := float64(len(points))
	if d := n*sxx - sx*sx; len(points) >= 2 && d > 1e-9 {
		return (n*sxy - sx*sy) / d, true
	}
	return 0, false
}

// growth adds, for every subject, how its times grow with the number of files: the exponent of a fitted power; 0 is not at all, 1 in
// proportion.
func growth(r *report) {
	const c = "growth"
	var found []metric
	for _, subject := range unique(r.Metrics, func(m metric) string { return m.Subject }) {
		for _, name := range unique(r.Metrics, func(m metric) string { return m.Name }) {
			if !strings.HasSuffix(name, " p50") {
				continue
			}
			if e, ok := exponent(pointsOf(r, subject, name, filesCases)); ok {
				found = append(found, metric{Case: c, Subject: subject, Name: strings.TrimSuffix(name, " p50"), Unit: "exp", Value: e})
			}
		}
	}
	for _, m := range found {
		r.add(m)
	}
	if len(found) > 0 {
		r.About[c] = "exponent e of time = c * files^e, fitted to the medians: 0 is independent of the size, 1 in proportion to it"
	}
}

// curve is one panel: a metric over the sizes of cases, both axes logarithmic.
type curve struct {
	title  string
	sizes  string             // what the sizes are
	points map[string][]point // by subject
}

// latencyPicture draws times over the files of a workspace, and over the snapshots in a row before, with a line per subject.
func (r *report) latencyPicture(t theme) picture {
	subjects := unique(r.Metrics, func(m metric) string { return m.Subject })
	pic := picture{legend: t.marks(subjects), width: 11 * vg.Centimeter}
	for _, over := range []struct{ sizes, cases string }{{"files in the workspace", filesCases}, {"snapshots in a row before", depthCases}} {
		var row []curve
		for _, name := range []string{"snapshot p50", "restore p50", "rollback p50"} {
			c := curve{title: name + " (ms)", sizes: over.sizes, points: map[string][]point{}}
			for _, s := range subjects {
				c.points[s] = pointsOf(r, s, name, over.cases)
			}
			row = append(row, c)
		}
		pic.add(row, t)
	}
	return pic
}

// scalePicture draws figures over the sizes of each kind of work that grows.
func (r *report) scalePicture(t theme) picture {
	pic := picture{width: 11 * vg.Centimeter}
	for _, p := range scaleParts() {
		var row []curve
		for _, name := range p.drawn {
			c := curve{sizes: p.name, points: map[string][]point{}}
			unit := ""
			for _, m := range r.ofCase(p.name) {
				if size, ok := sizeOf(m.Subject); ok && m.Name == name && m.Value > 0 {
					unit, c.points["snapfs"] = m.Unit, append(c.points["snapfs"], point{size, m.Value})
				}
			}
			c.title = fmt.Sprintf("%s (%s)", name, unit)
			if e, ok := exponent(c.points["snapfs"]); ok {
				c.title += fmt.Sprintf(", exponent %.2f", e)
			}
			row = append(row, c)
		}
		pic.add(row, t)
	}
	return pic
}

// add adds a row of panels, those that have something to show.
func (pic *picture) add(row []curve, t theme) {
	var panels []*plot.Plot
	for _, c := range row {
		if p := c.plot(pic.legend, t); p != nil {
			panels = append(panels, p)
		}
	}
	if len(panels) > 0 {
		pic.rows, pic.heights = append(pic.rows, panels), append(pic.heights, 7*vg.Centimeter)
	}
}

// plot draws a line per subject through its points; nil if no subject has two.
func (c curve) plot(marks []mark, t theme) *plot.Plot {
	p := newPlot(c.title, t)
	p.X.Label.Text = c.sizes
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = t.gridlines, t.gridlines
	p.Add(grid)
	if len(marks) == 0 {
		marks = t.marks([]string{"snapfs"})
	}
	lines := 0
	least, most := math.Inf(1), 0.
	for _, m := range marks {
		points := c.points[m.subject]
		if len(points) < 2 {
			continue
		}
		xys := make(plotter.XYs, len(points))
		for i, pt := range points {
			xys[i] = plotter.XY{X: pt.size, Y: pt.value}
			least, most = min(least, pt.value), max(most, pt.value)
		}
		p.Add(&plotter.Line{XYs: xys, LineStyle: draw.LineStyle{Color: m.style.Color, Width: vg.Points(1.5)}}, &plotter.Scatter{XYs: xys, GlyphStyle: m.style})
		lines++
	}
	if lines == 0 {
		return nil
	}
	// A line that hardly rises is to look so.
	const atLeast = 10 // times the lowest is the highest point of the axis
	grow := max(1.3, math.Sqrt(atLeast*least/most))
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = least/grow, most*grow, p.X.Min/1.2, p.X.Max*1.2
	return p
}
