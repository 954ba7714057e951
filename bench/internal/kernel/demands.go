package kernel

import "snapfs/bench/internal/report"

// demand is a bound for a figure of the kernel engine.
type demand struct {
	part, name string
	bound      float64
}

// What the kernel engine must reach.
var demands = []demand{
	{part: "branches", name: pageCacheOfAll, bound: 1.2},
	{part: "branches", name: fuseMounts, bound: 1},
	{part: "one edit", name: snapshotP50, bound: 100},
	{part: "one edit", name: held, bound: 0},
	{part: "changed files", name: held, bound: 0},
}

// judge compares the figures with what must be reached.
func judge(r *report.Report) {
	r.Floors = nil
	for _, d := range demands {
		v, ok := report.ValueOf(r.OfCase(d.part), kernelEngine, d.name)
		if !ok {
			continue
		}
		verdict := "floor"
		if v.Value > d.bound {
			verdict = "miss"
		}
		r.Floors = append(r.Floors, report.Floor{
			Case: d.part, Workload: d.name, Subject: kernelEngine, Measure: report.AtMost, Floor: d.bound, Seen: v.Value,
			Verdict: verdict,
		})
	}
}
