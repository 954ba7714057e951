package chart

import (
	"image/color"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"snapfs/bench/internal/report"
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
		if report.IsOurs(s) {
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
