package suite

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/machine"
	"snapfs/bench/internal/report"
)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	r := &report.Report{
		Suite: "s", Dir: dir, About: map[string]string{"c": "a case"},
		Machine: machine.Machine{CPU: "x", Programs: map[string]string{"git": "2.39"}},
	}
	r.Add(report.Metric{Case: "c", Subject: "snapfs", Name: "stored", Unit: "MB", Value: 4})
	r.Add(report.Metric{Case: "c", Subject: "git", Name: "stored", Unit: "MB", Value: 5})
	r.Add(report.Metric{Case: "c", Subject: "git", Name: "speed", Unit: "MB/s", Value: 100, More: true})
	r.Note("restic: missing")
	require.NoError(t, save(r, Suite{Draw: chart.Bars("stored")}))
	for _, f := range []string{"s.json", "s-light.svg", "s-dark.svg"} {
		require.FileExists(t, filepath.Join(dir, f))
	}
	var out bytes.Buffer
	r.Print(&out)
	require.Contains(t, out.String(), "restic: missing")
	require.Contains(t, out.String(), "stored MB")
	require.Contains(t, out.String(), "git 2.39")

	r.Metrics[0].Value, r.Metrics[2].Value = 3, 60
	r.Dir = filepath.Join(dir, "new")
	require.NoError(t, save(r, Suite{Draw: chart.Bars("stored")}))
	out.Reset()
	require.NoError(t, report.CompareAll(&out, dir, r.Dir, 15), "a peer that got worse is no failure")
}

// TestNoRoom: what the disk cannot hold is not started.
func TestNoRoom(t *testing.T) {
	e := &Env{Work: t.TempDir()}
	err := e.roomFor([]Suite{{Name: "huge", Space: func(*Env) int64 { return 1 << 60 }}})
	require.ErrorContains(t, err, "are missing")
	require.NoError(t, e.roomFor([]Suite{{Name: "small"}}))
}
