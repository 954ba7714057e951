package chart

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font"
)

// textElement is how the library writes a line of text: place, size in pixels, colour.
var textElement = regexp.MustCompile(
	`<text x="([^"]*)" y="([^"]*)" transform="scale\(1, -1\)"\s+` +
		`style="[^"]*font-size:([^"]*)px(?:;fill:([^";]*))?">([^<]*)</text>`,
)

// outlineText puts shapes in the place of an SVG's text, so that a picture is the same everywhere: what shows an SVG
// takes another font, of other widths, for one that it lacks, and labels are cut off. Each glyph is defined once, in
// units of the font, with y downwards.
func outlineText(svg []byte) ([]byte, error) {
	face := font.DefaultCache.Lookup(sans, 1)
	var buf sfnt.Buffer
	units := fixed.I(int(face.Face.UnitsPerEm()))
	glyphs := map[sfnt.GlyphIndex]string{}
	var failed error
	out := textElement.ReplaceAllFunc(svg, func(element []byte) []byte {
		m := textElement.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil {
			failed = fmt.Errorf("outline text: %w", err)
			return element
		}
		var g strings.Builder
		fmt.Fprintf(
			&g, `<g transform="scale(1,-1) translate(%s,%s) scale(%.5g)" fill="%s">`, m[1], m[2],
			size/float64(units.Round()), m[4],
		)
		x := fixed.Int26_6(0)
		for _, r := range html.UnescapeString(string(m[5])) {
			index, err := face.Face.GlyphIndex(&buf, r)
			if err == nil && glyphs[index] == "" {
				glyphs[index], err = glyphPath(face.Face, &buf, index, units)
			}
			advance, aerr := face.Face.GlyphAdvance(&buf, index, units, 0)
			if err != nil || aerr != nil {
				failed = fmt.Errorf("outline %q: no glyph", r)
				return element
			}
			fmt.Fprintf(&g, `<use xlink:href="#g%d" x="%d"/>`, index, x.Round())
			x += advance
		}
		return []byte(g.String() + "</g>")
	})
	var defs strings.Builder
	defs.WriteString("<defs>\n")
	for _, index := range slices.Sorted(maps.Keys(glyphs)) {
		fmt.Fprintf(&defs, "<path id=\"g%d\" d=\"%s\"/>\n", index, glyphs[index])
	}
	defs.WriteString("</defs>\n")
	return afterHead(out, defs.String()), failed
}

// glyphPath is the outline of a glyph as path data.
func glyphPath(f *sfnt.Font, buf *sfnt.Buffer, index sfnt.GlyphIndex, units fixed.Int26_6) (string, error) {
	segments, err := f.LoadGlyph(buf, index, units, nil)
	if err != nil {
		return "", err
	}
	letters := map[sfnt.SegmentOp]struct {
		letter string
		points int
	}{
		sfnt.SegmentOpMoveTo: {"M", 1}, sfnt.SegmentOpLineTo: {"L", 1},
		sfnt.SegmentOpQuadTo: {"Q", 2}, sfnt.SegmentOpCubeTo: {"C", 3},
	}
	var path strings.Builder
	path.WriteString("M0 0") // that of a blank is not empty
	for _, s := range segments {
		op := letters[s.Op]
		path.WriteString(op.letter)
		for i, p := range s.Args[:op.points] {
			if i > 0 {
				path.WriteByte(' ')
			}
			fmt.Fprintf(&path, "%d %d", p.X.Round(), p.Y.Round())
		}
	}
	return path.String() + "Z", nil
}

// afterHead puts text behind the start of an SVG's root element.
func afterHead(svg []byte, text string) []byte {
	root := bytes.Index(svg, []byte("<svg"))
	if root < 0 {
		return svg
	}
	end := root + bytes.IndexByte(svg[root:], '>') + 1
	return slices.Concat(svg[:end], []byte("\n"+text), svg[end:])
}
