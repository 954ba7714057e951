package chart

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"snapfs/bench/internal/report"
)

// Bars draws a row of panels per case, a column per metric.
func Bars(names ...string) Drawing {
	return func(r *report.Report, t theme) (map[string]picture, error) {
		p, err := barPicture(r, names, t)
		return map[string]picture{r.Suite: p}, err
	}
}

func barPicture(r *report.Report, names []string, t theme) (picture, error) {
	pic := picture{width: 11 * vg.Centimeter}
	for _, c := range r.Cases() {
		var row []*plot.Plot
		bars := 0
		for _, name := range names {
			of := slices.DeleteFunc(r.OfCase(c), func(m report.Metric) bool { return m.Name != name })
			if len(of) == 0 {
				continue
			}
			p, err := barPlot(c+": "+name, of, t)
			if err != nil {
				return pic, err
			}
			row, bars = append(row, p), max(bars, len(of))
		}
		if len(row) > 0 {
			pic.rows = append(pic.rows, row)
			pic.heights = append(pic.heights, vg.Length(bars)*0.6*vg.Centimeter+2.1*vg.Centimeter)
		}
	}
	return pic, nil
}

// barPlot draws a bar per figure, the best at the top.
func barPlot(title string, bars []report.Metric, t theme) (*plot.Plot, error) {
	slices.SortStableFunc(bars, func(a, b report.Metric) int { // the last is drawn at the top
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
	p := newPlot(title+" ("+bars[0].Unit+")", t)
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, t.gridlines
	p.Add(grid)
	names := make([]string, len(bars))
	labels := plotter.XYLabels{}
	for i, m := range bars {
		names[i] = m.Subject
		values := make(plotter.Values, len(bars))
		values[i] = m.Value
		b, err := plotter.NewBarChart(values, vg.Points(12))
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", title, err)
		}
		b.Horizontal, b.LineStyle.Width, b.Color = true, 0, t.others[0]
		if report.IsOurs(m.Subject) {
			b.Color = t.ours[0]
		}
		p.Add(b)
		labels.XYs = append(labels.XYs, plotter.XY{X: m.Value, Y: float64(i)})
		labels.Labels = append(labels.Labels, " "+report.Figure(m.Value))
		p.X.Max = max(p.X.Max, m.Value*1.18) // room for the figure
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, fmt.Errorf("draw %s: %w", title, err)
	}
	for i := range text.TextStyle {
		text.TextStyle[i] = textStyle(t, 9)
	}
	p.Add(text)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Tick.Marker = -0.6, float64(len(bars))-0.4, 0, plot.TickerFunc(evenTicks)
	return p, nil
}
