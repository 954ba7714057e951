package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// floor is what snapfs must reach in a workload beside a peer in the same run, and what it did reach.
type floor struct {
	Case     string  `json:"case"`
	Workload string  `json:"workload"`
	Subject  string  `json:"subject"`
	Peer     string  `json:"peer"`
	Measure  string  `json:"measure"` // see the constants
	Floor    float64 `json:"floor"`
	Goal     float64 `json:"goal,omitempty"` // 0: none beyond the floor
	Seen     float64 `json:"seen"`
	Verdict  string  `json:"verdict"` // "goal", "floor", "miss", or "-" where the floor does not apply
}

// The measures of a floor, each a ratio of medians.
const (
	timesFaster = "times faster"         // the peer's time in units of snapfs's: more is better
	timesSlower = "times its time"       // snapfs's time in units of the peer's: less is better
	ofSpeed     = "of its throughput"    // snapfs's throughput in units of the peer's: more is better
	whereSlow   = "times faster if slow" // as timesFaster, where the peer is far behind the kernel's overlayfs
)

// A peer that takes slowFactor times as long as the kernel's overlayfs is slow: there a file system that keeps within 1.2 times
// of overlayfs's time is 3 times faster than the peer.
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
	const uring, dev = "snapfs uring", "snapfs dev"
	var (
		changes = []string{"untar", "rm -rf upper", "rm -rf lower"}
		warm    = []string{"find warm", "grep warm", "git status warm", "open+read+close again"}
		cold    = []string{"find cold", "grep cold", "git status cold"}
		large   = []string{"read 1M cold", "read 1M warm", "mmap read cold", "mmap 4K random warm", "write 1M + fsync"}
		cached  = []string{"write 1M cached"}
		both    = []string{uring, dev}
	)
	return []demand{
		{changes, []string{uring}, alsoRatioTo, timesFaster, 3, 4},
		{changes, []string{uring}, ratioTo, timesSlower, 4.5, 3},
		{[]string{"git checkout"}, []string{uring}, alsoRatioTo, timesFaster, 2.4, 3.5},
		{[]string{"git checkout"}, []string{uring}, ratioTo, timesSlower, 2.5, 1.6},
		{warm, both, alsoRatioTo, whereSlow, 3, 5},
		{warm, both, ratioTo, timesSlower, 1.2, 1.05},
		{cold, both, alsoRatioTo, timesFaster, 1.5, 3},
		{cold, both, ratioTo, timesSlower, 3, 1.5},
		{large, both, alsoRatioTo, ofSpeed, 1, 0},
		{large, both, ratioTo, ofSpeed, 0.85, 0.95},
		{cached, both, ratioTo, ofSpeed, 0.3, 0},
		{append([]string{"git checkout"}, changes...), []string{dev}, alsoRatioTo, timesFaster, 1.4, 2},
	}
}

// judge compares a report's figures with the demands, as far as both sides were measured.
func (r *report) judge() {
	r.Floors = nil
	for _, c := range r.cases() {
		metrics := r.ofCase(c)
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

func (d demand) judge(metrics []metric, subject, workload string) (floor, bool) {
	f := floor{Workload: workload, Subject: subject, Peer: d.peer, Measure: d.measure, Floor: d.floor, Goal: d.goal, Verdict: "miss"}
	ours, ok := valueOf(metrics, subject, workload)
	peer, there := valueOf(metrics, d.peer, workload)
	if !ok || !there || ours.Value <= 0 || peer.Value <= 0 {
		return f, false
	}
	reached := func(bound float64) bool { return bound > 0 && f.Seen >= bound }
	switch d.measure {
	case timesSlower:
		f.Seen = ours.Value / peer.Value
		reached = func(bound float64) bool { return f.Seen <= bound }
	case ofSpeed:
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
	if kernel, ok := valueOf(metrics, ratioTo, workload); d.measure == whereSlow && f.Verdict == "miss" && ok && peer.Value < slowFactor*kernel.Value {
		f.Verdict = "-"
	}
	return f, true
}

// printFloors writes the floors of a case, those that are missed marked.
func (r *report) printFloors(w io.Writer, c string) {
	var list []floor
	missed := 0
	for _, f := range r.Floors {
		if f.Case == c {
			list = append(list, f)
			if f.Verdict == "miss" {
				missed++
			}
		}
	}
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: what must be reached: %d of %d missed\n", c, missed, len(list))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "workload\tsubject\tbeside\tfloor\tgoal\tseen\tverdict")
	for _, f := range list {
		goal := ""
		if f.Goal > 0 {
			goal = figure(f.Goal)
		}
		verdict := f.Verdict
		if verdict == "miss" {
			verdict = strings.ToUpper(verdict)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\n", f.Workload, f.Subject, f.Peer, figure(f.Floor), f.Measure, goal, figure(f.Seen), verdict)
	}
	_ = tw.Flush() // an error of w is the terminal's
}
