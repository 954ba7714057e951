package report

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metric is one measured figure.
type Metric struct {
	Case    string  `json:"case"`    // a corpus, a size
	Subject string  `json:"subject"` // snapfs or a peer
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	More    bool    `json:"more_is_better,omitempty"`

	Samples []float64 `json:"samples,omitempty"` // of which Value is the median, if there are several
}

// better reports whether a figure is better than another of the same metric.
func (m Metric) better(than Metric) bool {
	if m.More {
		return m.Value > than.Value
	}
	return m.Value < than.Value
}

// Unique gives the values of key in order of their first metric.
func Unique(metrics []Metric, key func(Metric) string) []string {
	var out []string
	for _, m := range metrics {
		if k := key(m); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// ValueOf gives a subject's value of a metric.
func ValueOf(metrics []Metric, subject, name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Subject == subject && m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}

// Figure prints a value with three significant digits or more.
func Figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// Milliseconds is a duration in that unit, as times are reported.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Median is the middle of values, or the mean of the two in the middle.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// IsOurs reports whether a subject is snapfs.
func IsOurs(subject string) bool { return strings.HasPrefix(subject, "snapfs") }

// FileName is a name that a file can have.
func FileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}
