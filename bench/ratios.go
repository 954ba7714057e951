package main

import (
	"fmt"
	"image/color"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
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
// of times or of throughputs, so that a time below 1 and a throughput above 1 are better than the other's.
func (r *report) printRatios(w io.Writer, c string) {
	metrics := r.ofCase(c)
	subjects := unique(metrics, func(m metric) string { return m.Subject })
	fmt.Fprintf(w, "\n%s: %s\n", c, r.About[c])
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
	prefix := c + ": "
	for _, key := range slices.Sorted(maps.Keys(r.Requests)) {
		if what, ok := strings.CutPrefix(key, prefix); ok {
			fmt.Fprintf(w, "requests, %s: %s\n", what, spell(r.Requests[key]))
		}
	}
}

// drawRatios draws the times of a case in units of ratioTo's, a group of bars per workload and a bar per subject.
func (r *report) drawRatios(dir, c string) error {
	metrics := r.ofCase(c)
	var names []string
	for _, m := range metrics {
		if _, ok := valueOf(metrics, ratioTo, m.Name); ok && !m.More && m.Unit == "s" && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	if len(names) < 2 {
		return nil
	}
	slices.Reverse(names) // the last is drawn at the top
	subjects := unique(metrics, func(m metric) string { return m.Subject })
	for _, t := range themes {
		file := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.svg", r.Suite, fileName(c), t.name))
		if err := drawGroups(file, c+": time in units of "+ratioTo+"'s", metrics, names, subjects, t); err != nil {
			return err
		}
	}
	return nil
}

func drawGroups(path, title string, metrics []metric, names, subjects []string, t theme) error {
	const thick = 5 // points
	p := plot.New()
	p.BackgroundColor = t.page
	p.Title.Text, p.Title.TextStyle.Color = title, t.ink
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Label.Color, a.Tick.Color = t.ink, t.ink, t.ink, t.ink
	}
	p.Legend.TextStyle.Color, p.Legend.Top = t.ink, false
	p.X.Min = 0
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, t.gridlines
	p.Add(grid)
	for i, s := range subjects {
		values := make(plotter.Values, len(names))
		for k, name := range names {
			m, ok := valueOf(metrics, s, name)
			base, there := valueOf(metrics, ratioTo, name)
			if ok && there && base.Value > 0 {
				values[k] = m.Value / base.Value
			}
		}
		b, err := plotter.NewBarChart(values, vg.Points(thick))
		if err != nil {
			return fmt.Errorf("draw %s: %w", path, err)
		}
		b.Horizontal, b.LineStyle.Width, b.Color = true, 0, shade(t.bar, i)
		if strings.HasPrefix(s, "snapfs") {
			b.Color = shade(t.ours, i)
		}
		b.Offset = vg.Points(thick * (float64(len(subjects)-1)/2 - float64(i)))
		p.Add(b)
		p.Legend.Add(s, b)
	}
	p.NominalY(names...)
	height := vg.Points(float64(len(names)) * (thick*float64(len(subjects)) + 8))
	if err := p.Save(18*vg.Centimeter, height+3*vg.Centimeter, path); err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}

// shade varies a colour, so that neighbouring bars can be told apart.
func shade(c color.Color, i int) color.Color {
	r, g, b, a := c.RGBA()
	f := []uint32{100, 75, 50}[i%3]
	return color.RGBA{uint8(r * f / 100 >> 8), uint8(g * f / 100 >> 8), uint8(b * f / 100 >> 8), uint8(a >> 8)}
}
