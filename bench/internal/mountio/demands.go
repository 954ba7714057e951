package mountio

import "snapfs/bench/internal/report"

// A peer that takes slowFactor times as long as the kernel's overlayfs is slow: there a file system that keeps within
// 1.2 times of overlayfs's time is 3 times faster than the peer.
const slowFactor = 3.6

// demand is a floor for some workloads.
type demand struct {
	workloads   []string
	subjects    []string
	peer        string
	measure     string
	floor, goal float64
}

// demands are the floors of the project for its mounts, in order of the table that it states them in.
func demands() []demand {
	const (
		uring, dev  = "snapfs uring", "snapfs dev"
		kernelURing = "snapfs kernel uring"
		kernelDev   = "snapfs kernel dev"
	)
	var (
		changes = []string{"untar", "rm -rf upper", "rm -rf lower"}
		warm    = []string{"find warm", "grep warm", "git status warm", "open+read+close again"}
		cold    = []string{"find cold", "grep cold", "git status cold"}
		large   = []string{"read 1M cold", "read 1M warm", "mmap read cold", "mmap 4K random warm", "write 1M + fsync"}
		cached  = []string{"write 1M cached"}
		both    = []string{uring, dev}

		kernel   = []string{kernelDev, kernelURing}
		times    = append([]string{"git checkout", "cp -a", "npm ci", "go build", "sqlite"}, changes...)
		transfer = append(
			[]string{"write 64K cached", "write 4K cached", "write 4K random", "read 4K random warm"}, append(cached, large...)...,
		)
	)
	return []demand{
		{changes, []string{uring}, report.SecondBaseline, report.TimesFaster, 3, 4},
		{changes, []string{uring}, report.Baseline, report.TimesSlower, 4.5, 3},
		{[]string{"git checkout"}, []string{uring}, report.SecondBaseline, report.TimesFaster, 2.4, 3.5},
		{[]string{"git checkout"}, []string{uring}, report.Baseline, report.TimesSlower, 2.5, 1.6},
		{warm, both, report.SecondBaseline, report.WhereSlow, 3, 5},
		{warm, both, report.Baseline, report.TimesSlower, 1.2, 1.05},
		{cold, both, report.SecondBaseline, report.TimesFaster, 1.5, 3},
		{cold, both, report.Baseline, report.TimesSlower, 3, 1.5},
		{large, both, report.SecondBaseline, report.OfSpeed, 1, 0},
		{large, both, report.Baseline, report.OfSpeed, 0.85, 0.95},
		{cached, both, report.Baseline, report.OfSpeed, 0.3, 0},
		{
			append([]string{"git checkout"}, changes...),
			[]string{dev},
			report.SecondBaseline, report.TimesFaster, 1.4, 2,
		},
		{times, kernel, report.Baseline, report.TimesSlower, 1.15, 1.05},
		{transfer, kernel, report.Baseline, report.OfSpeed, 1 / 1.15, 0.95},
		{warm, kernel, report.Baseline, report.TimesSlower, 1.2, 1.05},
		{append([]string{"git checkout cold"}, cold...), kernel, report.Baseline, report.TimesSlower, 2, 1.2},
	}
}

// judge compares a report's figures with the demands, as far as both sides were measured.
func judge(r *report.Report) {
	r.Floors = nil
	for _, c := range r.Cases() {
		metrics := r.OfCase(c)
		for _, d := range demands() {
			for _, w := range d.workloads {
				for _, s := range d.subjects {
					if f, ok := d.judge(metrics, s, w); ok {
						f.Case = c
						r.Floors = append(r.Floors, f)
					}
				}
			}
		}
	}
}

func (d demand) judge(metrics []report.Metric, subject, workload string) (report.Floor, bool) {
	f := report.Floor{
		Workload: workload, Subject: subject, Peer: d.peer, Measure: d.measure, Floor: d.floor, Goal: d.goal,
		Verdict: "miss",
	}
	ours, ok := report.ValueOf(metrics, subject, workload)
	peer, there := report.ValueOf(metrics, d.peer, workload)
	if !ok || !there || ours.Value <= 0 || peer.Value <= 0 {
		return f, false
	}
	reached := func(bound float64) bool { return bound > 0 && f.Seen >= bound }
	switch d.measure {
	case report.TimesSlower:
		f.Seen = ours.Value / peer.Value
		reached = func(bound float64) bool { return f.Seen <= bound }
	case report.OfSpeed:
		f.Seen = ours.Value / peer.Value
	default:
		f.Seen = peer.Value / ours.Value
	}
	switch {
	case reached(d.goal):
		f.Verdict = "goal"
	case reached(d.floor):
		f.Verdict = "floor"
	}
	kernel, ok := report.ValueOf(metrics, report.Baseline, workload)
	if ok && d.measure == report.WhereSlow && f.Verdict == "miss" && peer.Value < slowFactor*kernel.Value {
		f.Verdict = "-"
	}
	return f, true
}
