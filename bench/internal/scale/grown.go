package scale

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/tree"
)

// grown collects figures at sizes of one kind of work.
type grown struct {
	r      *report.Report
	what   string // of the sizes
	points map[string][]report.Point
	order  []string
}

func newGrown(r *report.Report, what string) *grown {
	return &grown{r: r, what: what, points: map[string][]report.Point{}}
}

func (g *grown) add(size int64, name, unit string, value float64) {
	if g.points[name] == nil {
		g.order = append(g.order, name)
	}
	g.points[name] = append(g.points[name], report.Point{Size: float64(size), Value: value})
	g.r.Add(report.Metric{Case: g.what, Subject: fmt.Sprintf("snapfs, %d", size), Name: name, Unit: unit, Value: value})
}

// addTimes adds the median and the 99th percentile of what was measured at a size, and sorts it.
func (g *grown) addTimes(size int64, name string, took []time.Duration) {
	slices.Sort(took)
	g.add(size, name+" p50", "ms", report.Milliseconds(took[len(took)/2]))
	g.add(size, name+" p99", "ms", report.Milliseconds(took[(len(took)-1)*99/100]))
}

// fit adds the exponents.
func (g *grown) fit(about string) {
	if len(g.order) == 0 {
		return
	}
	g.r.About[g.what] = about + "; the last row is the exponent e of figure = c * size^e"
	for _, name := range g.order {
		if e, ok := report.Exponent(
			slices.DeleteFunc(g.points[name], func(p report.Point) bool { return p.Value <= 0 }),
		); ok {
			g.r.Add(
				report.Metric{Case: g.what, Subject: report.ExponentRow, Name: name, Unit: g.unitOf(name), Value: e},
			)
		}
	}
}

func (g *grown) unitOf(name string) string {
	for _, m := range g.r.Metrics {
		if m.Case == g.what && m.Name == name {
			return m.Unit
		}
	}
	return ""
}

// state adds what the daemon and its home take.
func (g *grown) state(size int64, s *engine.Daemon) error {
	mem, err := s.Memory()
	if err != nil {
		return err
	}
	disk, err := tree.Allocated(filepath.Join(s.Home, "store"))
	if err != nil {
		return err
	}
	g.add(size, "memory", "MiB", float64(mem)/(1<<20))
	g.add(size, "store", "MB", float64(disk)/1e6)
	return nil
}
