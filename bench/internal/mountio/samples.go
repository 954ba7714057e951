package mountio

import (
	"cmp"
	"maps"
	"slices"

	"snapfs/bench/internal/report"
)

// reading is one figure of one run of a workload.
type reading struct {
	name  string
	unit  string
	value float64
	more  bool // more is better
}

// samples gathers the readings of all rounds. Used by one goroutine.
type samples struct {
	order    []reading // one of each name, in order of the first run
	values   map[[2]string][]float64
	systems  []string
	requests map[[2]string]map[string]uint64 // by system and workload, of its last sample
}

func newSamples() *samples {
	return &samples{values: map[[2]string][]float64{}, requests: map[[2]string]map[string]uint64{}}
}

func (s *samples) add(system string, found []reading) {
	if !slices.Contains(s.systems, system) {
		s.systems = append(s.systems, system)
	}
	for _, f := range found {
		if !slices.ContainsFunc(s.order, func(o reading) bool { return o.name == f.name }) {
			s.order = append(s.order, f)
		}
		key := [2]string{system, f.name}
		s.values[key] = append(s.values[key], f.value)
	}
}

// count notes the requests of one sample of a workload, in which it ran that many times.
func (s *samples) count(system, workload string, times int, before, after map[string]uint64) {
	if after == nil {
		return
	}
	diff := map[string]uint64{}
	for kind, n := range after {
		if n > before[kind] {
			diff[kind] = n - before[kind]
		}
	}
	diff[report.RunsKind] = uint64(times)
	s.requests[[2]string{system, workload}] = diff
}

// report writes medians, ratios and request counts.
func (s *samples) report(r *report.Report, tree string) {
	for _, o := range s.order {
		for _, system := range s.systems {
			v := s.values[[2]string{system, o.name}]
			if len(v) == 0 {
				continue
			}
			r.Add(report.Metric{
				Case: tree, Subject: system, Name: o.name, Unit: o.unit, Value: report.Median(v), More: o.more,
				Samples: v,
			})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.requests), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		if r.Requests == nil {
			r.Requests = map[string]map[string]uint64{}
		}
		r.Requests[tree+": "+key[1]+" on "+key[0]] = s.requests[key]
	}
}
