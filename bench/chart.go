package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// theme is the colours of a chart on a light or a dark page.
type theme struct {
	name      string
	page      color.Color
	ink       color.Color
	gridlines color.Color
	ours      []color.Color // of subjects that are snapfs
	others    []color.Color // of the others; bars have the first
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 0xff}
}

var themes = []theme{
	{
		"light", color.White, rgb(0x242424), rgb(0xd8d8d8),
		[]color.Color{rgb(0x0b6e4f), rgb(0x35b387)},
		[]color.Color{rgb(0x8a99ab), rgb(0x1f6fb2), rgb(0xc8680a), rgb(0x8a4fb0)},
	},
	{
		"dark", rgb(0x0d1117), rgb(0xe0e0e0), rgb(0x3a4048),
		[]color.Color{rgb(0x3dc995), rgb(0x1f8f68)},
		[]color.Color{rgb(0x8494a6), rgb(0x58a6ff), rgb(0xf0a04b), rgb(0xc79bf0)},
	},
}

// sans is the font of all text; the library brings it along.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// mark is how a subject is drawn where several share a panel.
type mark struct {
	subject string
	style   draw.GlyphStyle
}

// marks give every subject a colour and a shape.
func (t theme) marks(subjects []string) []mark {
	shapes := []draw.GlyphDrawer{draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.CrossGlyph{}}
	var out []mark
	ours, others := 0, 0
	for _, s := range subjects {
		m := mark{s, draw.GlyphStyle{Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}}
		if isOurs(s) {
			m.style.Color = t.ours[ours%len(t.ours)]
			ours++
		} else {
			m.style.Color, m.style.Shape = t.others[others%len(t.others)], shapes[others%len(shapes)]
			others++
		}
		out = append(out, m)
	}
	return out
}

func isOurs(subject string) bool { return strings.HasPrefix(subject, "snapfs") }

// picture is rows of panels above each other, with what their marks mean at the top.
type picture struct {
	legend  []mark
	rows    [][]*plot.Plot
	heights []vg.Length // of rows
	width   vg.Length   // of a panel
}

// drawAll draws what is drawn of a suite: of storage bars, of latency and scale curves, of io ratios.
func (r *report) drawAll(dir string) error {
	for _, t := range themes {
		pictures := map[string]picture{}
		switch {
		case r.Suite == "latency":
			pictures[r.Suite] = r.latencyPicture(t)
		case r.Suite == "scale":
			pictures[r.Suite] = r.scalePicture(t)
		case r.Transposed:
			for _, c := range r.cases() {
				pictures[r.Suite+"-"+fileName(c)] = r.ratioPicture(c, t)
			}
		default:
			p, err := r.barPicture([]string{"stored", "store cpu", "restore cpu"}, t)
			if err != nil {
				return err
			}
			pictures[r.Suite] = p
		}
		for name, p := range pictures {
			if len(p.rows) == 0 {
				continue
			}
			if err := r.savePicture(filepath.Join(dir, name+"-"+t.name+".svg"), p, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// savePicture writes a picture as SVG, and below it where and when its figures were measured.
func (r *report) savePicture(path string, p picture, t theme) error {
	const line, margin, legend = vg.Length(11), vg.Length(9), vg.Length(22) // points
	columns := 0
	for _, row := range p.rows {
		columns = max(columns, len(row))
	}
	width := p.width * vg.Length(columns)
	caption := r.caption(int(width / 4.2))
	height := line*vg.Length(len(caption)) + 2*margin
	for _, h := range p.heights {
		height += h
	}
	if len(p.legend) > 0 {
		height += legend
	}
	img := vgsvg.New(width, height)
	c := draw.New(img)
	c.FillPolygon(t.page, []vg.Point{{X: 0, Y: 0}, {X: width, Y: 0}, {X: width, Y: height}, {X: 0, Y: height}})
	top := height
	if len(p.legend) > 0 {
		drawLegend(c, p.legend, vg.Point{X: margin, Y: top - legend/2 - margin/2}, t)
		top -= legend
	}
	for i, row := range p.rows {
		for k, plot := range row {
			left := p.width * vg.Length(k)
			plot.Draw(draw.Crop(c, left+margin, left+p.width-margin-width, top-p.heights[i]+margin/2, top-margin-height))
		}
		top -= p.heights[i]
	}
	for i, text := range caption {
		c.FillText(textStyle(t, 8), vg.Point{X: margin, Y: top - margin - line*vg.Length(i)}, text)
	}
	var svg bytes.Buffer
	if _, err := img.WriteTo(&svg); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	text, err := outlineText(svg.Bytes())
	if err != nil {
		return err
	}
	// What programs can read, as the visible text is shapes.
	text = afterHead(text, "<desc>"+html.EscapeString(strings.Join(caption, "\n"))+"</desc>")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// textStyle is text of a size in points, whose place is its left end at half its height.
func textStyle(t theme, size vg.Length) draw.TextStyle {
	s := plot.New().Title.TextStyle
	s.Font = font.From(sans, size)
	s.Color, s.XAlign, s.YAlign = t.ink, draw.XLeft, draw.YCenter
	return s
}

func drawLegend(c draw.Canvas, marks []mark, at vg.Point, t theme) {
	const gap = vg.Length(7)
	style := textStyle(t, 10)
	for _, m := range marks {
		c.DrawGlyph(m.style, vg.Point{X: at.X + gap/2, Y: at.Y})
		at.X += 2 * gap
		c.FillText(style, at, m.subject)
		at.X += style.Width(m.subject) + 2*gap
	}
}

// caption says where and when a report was made, in lines of at most width characters or so.
func (r *report) caption(width int) []string {
	lines := []string{r.Date.Format(time.DateOnly) + ", " + r.Machine.String()}
	return append(lines, strings.Split(r.Machine.tools(width), "\n")...)
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}

// newPlot is an empty panel in the colours of a theme.
func newPlot(title string, t theme) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = t.page
	p.Title.Text, p.Title.TextStyle.Color, p.Title.Padding = title, t.ink, vg.Points(5)
	p.Title.TextStyle.Font = font.From(sans, 11)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Label.TextStyle.Color, a.Tick.Label.Color, a.Tick.Color = t.ink, t.ink, t.ink, t.ink
		a.Label.TextStyle.Font, a.Tick.Label.Font = font.From(sans, 10), font.From(sans, 9)
	}
	return p
}

// barPicture draws a row of panels per case, a column per metric.
func (r *report) barPicture(names []string, t theme) (picture, error) {
	pic := picture{width: 11 * vg.Centimeter}
	for _, c := range r.cases() {
		var row []*plot.Plot
		bars := 0
		for _, name := range names {
			of := slices.DeleteFunc(r.ofCase(c), func(m metric) bool { return m.Name != name })
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
func barPlot(title string, bars []metric, t theme) (*plot.Plot, error) {
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
		if isOurs(m.Subject) {
			b.Color = t.ours[0]
		}
		p.Add(b)
		labels.XYs = append(labels.XYs, plotter.XY{X: m.Value, Y: float64(i)})
		labels.Labels = append(labels.Labels, " "+figure(m.Value))
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
