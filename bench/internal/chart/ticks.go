package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// evenTicks are at most six round numbers from least to most.
func evenTicks(least, most float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((most-least)/5)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (most-least)/(step*f) <= 5 {
			step *= f
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(least / step); i*step <= most; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: plain(i * step)})
	}
	return ticks
}

// logTicks are the powers of ten from least to most, which are positive, and where these are few the numbers 2 and 5
// between them.
func logTicks(least, most float64) []plot.Tick {
	const wide = 1000 // from here on powers of ten are enough
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(least)); e <= math.Log10(most); e++ {
		for _, f := range []float64{1, 2, 5} {
			v := f * math.Pow(10, e)
			if v < least || v > most {
				continue
			}
			t := plot.Tick{Value: v}
			if f == 1 || most/least < wide {
				t.Label = plain(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// plain prints a round number, with k and M for thousands and millions.
func plain(v float64) string {
	unit := ""
	switch {
	case v >= 1e6:
		v, unit = v/1e6, "M"
	case v >= 1e4:
		v, unit = v/1e3, "k"
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + unit
}
