package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Floor is what snapfs must reach in a workload beside a peer in the same run, and what it did reach.
type Floor struct {
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

// The measures of a floor, each a ratio of medians, but for AtMost.
const (
	TimesFaster = "times faster"         // the peer's time in units of snapfs's: more is better
	TimesSlower = "times its time"       // snapfs's time in units of the peer's: less is better
	OfSpeed     = "of its throughput"    // snapfs's throughput in units of the peer's: more is better
	WhereSlow   = "times faster if slow" // as timesFaster, where the peer is far behind the kernel's overlayfs
	AtMost      = "at most"              // the figure itself, in its unit
)

// PrintFloors writes the floors of a case, those that are missed marked.
func (r *Report) PrintFloors(w io.Writer, c string) {
	var list []Floor
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
			goal = Figure(f.Goal)
		}
		verdict := f.Verdict
		if verdict == "miss" {
			verdict = strings.ToUpper(verdict)
		}
		fmt.Fprintf(
			tw, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\n", f.Workload, f.Subject, f.Peer, Figure(f.Floor), f.Measure, goal,
			Figure(f.Seen), verdict,
		)
	}
	_ = tw.Flush() // an error of w is the terminal's
}
