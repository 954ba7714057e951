package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SizeOf is the number that a case's name begins or ends with.
func SizeOf(name string) (float64, bool) {
	for _, word := range strings.Fields(name) {
		if n, err := strconv.ParseFloat(strings.ReplaceAll(word, ",", ""), 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// Point is a figure at a size.
type Point struct{ Size, Value float64 }

// Words by which the cases of one kind are known, besides their sizes.
const (
	FilesCases = "files"
	DepthCases = "depth"
)

// Points are a subject's figures of a metric in all cases that are named with a word and a size, from the smallest on.
func Points(r *Report, subject, name, word string) []Point {
	var points []Point
	for _, m := range r.Metrics {
		if m.Subject != subject || m.Name != name || !slices.Contains(strings.Fields(m.Case), word) || m.Value <= 0 {
			continue
		}
		if n, ok := SizeOf(m.Case); ok {
			points = append(points, Point{n, m.Value})
		}
	}
	slices.SortFunc(points, func(a, b Point) int { return cmp.Compare(a.Size, b.Size) })
	return points
}

// Exponent fits value = c * size^e by least squares of the logarithms.
func Exponent(points []Point) (e float64, ok bool) {
	var sx, sy, sxx, sxy float64
	for _, p := range points {
		x, y := math.Log(p.Size), math.Log(p.Value)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	n := float64(len(points))
	if d := n*sxx - sx*sx; len(points) >= 2 && d > 1e-9 {
		return (n*sxy - sx*sy) / d, true
	}
	return 0, false
}

// ExponentRow is the subject of fitted exponents.
const ExponentRow = "exponent"
