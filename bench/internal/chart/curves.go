package chart

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"snapfs/bench/internal/report"
)

// curve is one panel: a metric over the sizes of cases, both axes logarithmic.
type curve struct {
	title  string
	sizes  string                    // what the sizes are
	points map[string][]report.Point // by subject
}

// Sizes are cases of a report that differ by a size, and what is drawn of them: a row of panels.
type Sizes struct {
	What    string   // the sizes are of
	Metrics []string // a panel each
}

// OverCases draws metrics over the sizes in the names of cases, with a line per subject. Cases are known by the word in
// words that belongs to the row.
func OverCases(words []string, rows ...Sizes) Drawing {
	return func(r *report.Report, t theme) (map[string]picture, error) {
		subjects := report.Unique(r.Metrics, func(m report.Metric) string { return m.Subject })
		pic := picture{legend: t.marks(subjects), width: 11 * vg.Centimeter}
		for i, row := range rows {
			var panels []curve
			for _, name := range row.Metrics {
				c := curve{title: name + " (ms)", sizes: row.What, points: map[string][]report.Point{}}
				for _, s := range subjects {
					c.points[s] = report.Points(r, s, name, words[i])
				}
				panels = append(panels, c)
			}
			pic.add(panels, t)
		}
		return map[string]picture{r.Suite: pic}, nil
	}
}

// OverSubjects draws metrics over the sizes in the names of subjects, which are all snapfs; a row is the case of the
// same name.
func OverSubjects(rows ...Sizes) Drawing {
	return func(r *report.Report, t theme) (map[string]picture, error) {
		pic := picture{width: 11 * vg.Centimeter}
		for _, row := range rows {
			var panels []curve
			for _, name := range row.Metrics {
				c := curve{title: name, sizes: row.What, points: map[string][]report.Point{}}
				unit := ""
				for _, m := range r.OfCase(row.What) {
					if size, ok := report.SizeOf(m.Subject); ok && m.Name == name && m.Value > 0 {
						unit = m.Unit
						c.points["snapfs"] = append(c.points["snapfs"], report.Point{Size: size, Value: m.Value})
					}
				}
				c.title = fmt.Sprintf("%s (%s)", name, unit)
				if e, ok := report.Exponent(c.points["snapfs"]); ok {
					c.title += fmt.Sprintf(", exponent %.2f", e)
				}
				panels = append(panels, c)
			}
			pic.add(panels, t)
		}
		return map[string]picture{r.Suite: pic}, nil
	}
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
			xys[i] = plotter.XY{X: pt.Size, Y: pt.Value}
			least, most = min(least, pt.Value), max(most, pt.Value)
		}
		p.Add(
			&plotter.Line{XYs: xys, LineStyle: draw.LineStyle{Color: m.style.Color, Width: vg.Points(1.5)}},
			&plotter.Scatter{XYs: xys, GlyphStyle: m.style},
		)
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
