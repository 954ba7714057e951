package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The subjects that others are compared with: the table has a column of ratios for each, the chart is in units of
// the first.
const (
	ratioTo     = "overlayfs"
	alsoRatioTo = "fuse-overlayfs"
)

// valueOf gives a subject's value of a metric.
func valueOf(metrics []metric, subject, name string) (metric, bool) {
	i := slices.IndexFunc(metrics, func(m metric) bool { return m.Subject == subject && m.Name == name })
	if i < 0 {
		return metric{}, false
	}
	return metrics[i], true
}

// printRatios writes a case with a row per metric, a column per subject, and for each subject that is snapfs its ratios:
// of times or of throughputs, so that a time below 1 and a throughput above 1 are better than the other's. Processor times
// are a table of their own.
func (r *report) printRatios(w io.Writer, c string) {
	metrics := r.ofCase(c)
	var wall, cpu []metric
	for _, m := range metrics {
		if strings.HasSuffix(m.Name, cpuSuffix) || strings.HasSuffix(m.Name, serverSuffix) {
			cpu = append(cpu, m)
		} else {
			wall = append(wall, m)
		}
	}
	fmt.Fprintf(w, "\n%s: %s\n", c, r.About[c])
	printTable(w, wall)
	if len(cpu) > 0 {
		fmt.Fprintf(w, "\n%s: processor time of programs and server together, and of the server\n", c)
		printTable(w, cpu)
	}
	fmt.Fprintln(w)
	prefix := c + ": "
	for _, key := range slices.Sorted(maps.Keys(r.Requests)) {
		if what, ok := strings.CutPrefix(key, prefix); ok {
			fmt.Fprintf(w, "requests, %s: %s\n", what, spell(r.Requests[key]))
		}
	}
}

func printTable(w io.Writer, metrics []metric) {
	subjects := unique(metrics, func(m metric) string { return m.Subject })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "\t\t" + strings.Join(subjects, "\t")
	for _, s := range subjects {
		if strings.HasPrefix(s, "snapfs") {
			head += "\t" + s + " / " + ratioTo + "\t/ " + alsoRatioTo
		}
	}
	fmt.Fprintf(tw, "%s\t\n", head)
	for _, name := range unique(metrics, func(m metric) string { return m.Name }) {
		row := ""
		unit := ""
		for _, s := range subjects {
			m, ok := valueOf(metrics, s, name)
			row += "\t"
			if ok {
				row += figure(m.Value)
				unit = m.Unit
			}
		}
		for _, s := range subjects {
			if !strings.HasPrefix(s, "snapfs") {
				continue
			}
			m, ok := valueOf(metrics, s, name)
			for _, to := range []string{ratioTo, alsoRatioTo} {
				row += "\t"
				if o, there := valueOf(metrics, to, name); ok && there && o.Value > 0 {
					row += fmt.Sprintf("%.2f", m.Value/o.Value)
				}
			}
		}
		fmt.Fprintf(tw, "%s\t%s%s\t\n", name, unit, row)
	}
	_ = tw.Flush() // an error of w is the terminal's
}

// ratioPicture draws the times of a case in units of ratioTo's: a line per workload, a mark per subject.
func (r *report) ratioPicture(c string, t theme) picture {
	metrics := r.ofCase(c)
	var names []string
	for _, m := range metrics {
		if base, ok := valueOf(metrics, ratioTo, m.Name); ok && base.Value > 0 && !m.More && m.Unit != "MB/s" && !strings.HasSuffix(m.Name, "cpu") && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	if len(names) < 2 {
		return picture{}
	}
	slices.Reverse(names) // the last is drawn at the top
	p := newPlot(c+": time in units of "+ratioTo+"'s, left is faster", t)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = t.gridlines, t.gridlines
	p.Add(grid)
	marks := t.marks(unique(metrics, func(m metric) string { return m.Subject }))
	marks = slices.DeleteFunc(marks, func(m mark) bool { return m.subject == ratioTo })
	least, most := 0.5, 2.
	for _, m := range marks {
		var points plotter.XYs
		for k, name := range names {
			if v, ok := valueOf(metrics, m.subject, name); ok && v.Value > 0 {
				base, _ := valueOf(metrics, ratioTo, name)
				points = append(points, plotter.XY{X: v.Value / base.Value, Y: float64(k)})
				least, most = min(least, v.Value/base.Value), max(most, v.Value/base.Value)
			}
		}
		p.Add(&plotter.Scatter{XYs: points, GlyphStyle: m.style})
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = least/1.2, most*1.2, -0.6, float64(len(names))-0.4
	one := &plotter.Line{XYs: plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: p.Y.Max}}, LineStyle: draw.LineStyle{Color: t.ink, Width: vg.Points(1)}}
	p.Add(one)
	return picture{
		legend: marks, rows: [][]*plot.Plot{{p}}, width: 20 * vg.Centimeter,
		heights: []vg.Length{vg.Length(len(names))*0.6*vg.Centimeter + 2.1*vg.Centimeter},
	}
}
