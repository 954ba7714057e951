package report

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/machine"
	"snapfs/bench/internal/usage"
)

// savedReport writes a report with some figures of snapfs and git.
func savedReport(t *testing.T, cpu string, values ...float64) string {
	t.Helper()
	r := &Report{Suite: "storage", Dir: t.TempDir(), Machine: machine.Machine{CPU: cpu}, About: map[string]string{}}
	for i, m := range []Metric{
		{Case: "c", Subject: "snapfs", Name: "stored", Unit: "MB"},
		{Case: "c", Subject: "snapfs", Name: "store cpu", Unit: "s"},
		{Case: "c", Subject: "snapfs", Name: "speed", Unit: "MB/s", More: true},
		{Case: "c", Subject: "git", Name: "stored", Unit: "MB"},
	} {
		m.Value = values[i]
		r.Add(m)
	}
	require.NoError(t, r.Keep())
	return r.Dir
}

func TestCompare(t *testing.T) {
	old := savedReport(t, "a", 100, 10, 50, 100)
	for _, c := range []struct {
		name   string
		cpu    string
		values []float64
		worse  bool
		want   string
	}{
		{"equal", "a", []float64{100, 10, 50, 100}, false, "0 of 4 figures differ"},
		{"within noise", "a", []float64{100.9, 11.4, 40, 100}, false, "0 of 4 figures differ"},
		{"bytes", "a", []float64{102, 10, 50, 100}, true, `WORSE +c +snapfs +stored +100 → 102 MB +\+2.0 %`},
		{"cpu", "a", []float64{100, 12, 50, 100}, true, `WORSE +c +snapfs +store cpu`},
		{"throughput", "a", []float64{100, 10, 30, 100}, true, `WORSE +c +snapfs +speed`},
		{"better", "a", []float64{90, 5, 90, 100}, false, `(?s)better +c +snapfs +stored.*better.*better`},
		{"a peer", "a", []float64{100, 10, 50, 200}, false, `WORSE +c +git`},
		{"time of another machine", "b", []float64{100, 30, 50, 100}, false, `(?s)different machines.*WORSE`},
		{"bytes of another machine", "b", []float64{130, 10, 50, 100}, true, "WORSE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := savedReport(t, c.cpu, c.values...)
			var out bytes.Buffer
			err := CompareAll(&out, old, dir, 15)
			require.Regexp(t, c.want, out.String())
			if c.worse {
				require.ErrorIs(t, err, ErrWorse)
			} else {
				require.NoError(t, err)
			}
			require.ErrorAs(t, CompareAll(&out, old, t.TempDir(), 15), new(usage.Error), "nothing to compare")
			byFile := CompareAll(&out, old, filepath.Join(dir, "storage.json"), 15)
			require.Equal(t, c.worse, byFile != nil, "a file with the directory of the others")
		})
	}
}

// TestMerge: what is not measured again stays, and a report of another machine is refused.
func TestMerge(t *testing.T) {
	path := filepath.Join(savedReport(t, "a", 1, 2, 3, 4), "storage.json")
	r := &Report{Suite: "storage", Machine: machine.Machine{CPU: "a"}, fresh: map[string]bool{}}
	require.NoError(t, r.Adopt(path))
	r.Add(Metric{Case: "c", Subject: "snapfs", Name: "stored", Unit: "MB", Value: 9})
	r.Add(Metric{Case: "b", Subject: "snapfs", Name: "stored", Unit: "MB", Value: 8})
	r.Order([]string{"b", "c"}, []string{"snapfs", "git"})
	var got []float64
	for _, m := range r.Metrics {
		got = append(got, m.Value)
	}
	require.Equal(t, []float64{8, 9, 4}, got)
	require.Len(t, r.Earlier, 1)
	other := &Report{Machine: machine.Machine{CPU: "b"}}
	require.ErrorContains(t, other.Adopt(path), "another machine")
	require.NoError(t, other.Adopt(filepath.Join(t.TempDir(), "none.json")))
}
