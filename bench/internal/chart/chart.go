package chart

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"snapfs/bench/internal/report"
)

// picture is rows of panels above each other, with what their marks mean at the top.
type picture struct {
	legend  []mark
	rows    [][]*plot.Plot
	heights []vg.Length // of rows
	width   vg.Length   // of a panel
}

// Drawing makes the pictures of a report, by the names of their files.
type Drawing func(r *report.Report, t theme) (map[string]picture, error)

// Save draws a report for light and for dark pages, as SVG files beside it.
func Save(r *report.Report, draw Drawing) error {
	if r.Dir == "" {
		return nil
	}
	for _, t := range themes {
		pictures, err := draw(r, t)
		if err != nil {
			return err
		}
		for name, p := range pictures {
			if len(p.rows) == 0 {
				continue
			}
			if err := savePicture(r, filepath.Join(r.Dir, name+"-"+t.name+".svg"), p, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// savePicture writes a picture as SVG, and below it where and when its figures were measured.
func savePicture(r *report.Report, path string, p picture, t theme) error {
	const line, margin, legend = vg.Length(11), vg.Length(9), vg.Length(22) // points
	columns := 0
	for _, row := range p.rows {
		columns = max(columns, len(row))
	}
	width := p.width * vg.Length(columns)
	caption := captionOf(r, int(width/4.2))
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
			plot.Draw(
				draw.Crop(c, left+margin, left+p.width-margin-width, top-p.heights[i]+margin/2, top-margin-height),
			)
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
func captionOf(r *report.Report, width int) []string {
	lines := []string{r.Date.Format(time.DateOnly) + ", " + r.Machine.String()}
	return append(lines, strings.Split(r.Machine.ProgramLines(width), "\n")...)
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
