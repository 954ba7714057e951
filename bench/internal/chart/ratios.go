package chart

import (
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"snapfs/bench/internal/report"
)

// Ratios draws a picture per case: times in units of overlayfs's, a line per workload, a mark per subject.
func Ratios() Drawing {
	return func(r *report.Report, t theme) (map[string]picture, error) {
		pictures := map[string]picture{}
		for _, c := range r.Cases() {
			pictures[r.Suite+"-"+report.FileName(c)] = ratioPicture(r, c, t)
		}
		return pictures, nil
	}
}

func ratioPicture(r *report.Report, c string, t theme) picture {
	metrics := r.OfCase(c)
	var names []string
	for _, m := range metrics {
		if m.More || m.Unit == "MB/s" || strings.HasSuffix(m.Name, "cpu") || slices.Contains(names, m.Name) {
			continue
		}
		if base, ok := report.ValueOf(metrics, report.Baseline, m.Name); ok && base.Value > 0 {
			names = append(names, m.Name)
		}
	}
	if len(names) < 2 {
		return picture{}
	}
	slices.Reverse(names) // the last is drawn at the top
	p := newPlot(c+": time in units of "+report.Baseline+"'s, left is faster", t)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = t.gridlines, t.gridlines
	p.Add(grid)
	marks := t.marks(report.Unique(metrics, func(m report.Metric) string { return m.Subject }))
	marks = slices.DeleteFunc(marks, func(m mark) bool { return m.subject == report.Baseline })
	least, most := 0.5, 2.
	for _, m := range marks {
		var points plotter.XYs
		for k, name := range names {
			if v, ok := report.ValueOf(metrics, m.subject, name); ok && v.Value > 0 {
				base, _ := report.ValueOf(metrics, report.Baseline, name)
				points = append(points, plotter.XY{X: v.Value / base.Value, Y: float64(k)})
				least, most = min(least, v.Value/base.Value), max(most, v.Value/base.Value)
			}
		}
		p.Add(&plotter.Scatter{XYs: points, GlyphStyle: m.style})
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = least/1.2, most*1.2, -0.6, float64(len(names))-0.4
	one := &plotter.Line{
		XYs:       plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: p.Y.Max}},
		LineStyle: draw.LineStyle{Color: t.ink, Width: vg.Points(1)},
	}
	p.Add(one)
	return picture{
		legend: marks, rows: [][]*plot.Plot{{p}}, width: 20 * vg.Centimeter,
		heights: []vg.Length{vg.Length(len(names))*0.6*vg.Centimeter + 2.1*vg.Centimeter},
	}
}
