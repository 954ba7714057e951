package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/machine"
	"snapfs/bench/internal/report"
)

// TestCharts draws a picture of each kind. Their text is shapes, which no program that lacks a font cuts off; what a
// program may want to read is in the description.
func TestCharts(t *testing.T) {
	dir := t.TempDir()
	made := func(suite string, transposed bool) *report.Report {
		return &report.Report{
			Suite: suite, Dir: dir, Transposed: transposed, About: map[string]string{},
			Machine: machine.Machine{Kernel: "6.1 <x>", Programs: map[string]string{"git": "2.39"}},
		}
	}
	inOut := made("io", true)
	for i, s := range []string{"ext4", report.Baseline, report.SecondBaseline, "snapfs dev", "snapfs uring"} {
		inOut.Add(report.Metric{Case: "a/b", Subject: s, Name: "untar", Unit: "s", Value: float64(i + 1)})
		inOut.Add(report.Metric{Case: "a/b", Subject: s, Name: "stat", Unit: "µs", Value: float64(5 - i)})
	}
	latency := made("latency", false)
	for _, size := range []string{"1000 files", "100000 files", "10000 files"} {
		latency.Add(report.Metric{Case: size, Subject: "snapfs", Name: "snapshot p50", Unit: "ms", Value: 4})
		latency.Add(report.Metric{Case: size, Subject: "btrfs", Name: "snapshot p50", Unit: "ms", Value: 5})
	}
	scale := made("scale", false)
	for size := 1; size <= 10; size++ {
		scale.Add(report.Metric{
			Case: "snapshots in a row", Subject: fmt.Sprintf("snapfs, %d", size*1000), Name: "memory", Unit: "MiB",
			Value: float64(20 * size),
		})
	}
	storage := made("storage", false)
	for i := range 10 {
		storage.Add(report.Metric{
			Case: "C1", Subject: fmt.Sprintf("peer with a long name %d", i), Name: "stored", Unit: "MB",
			Value: float64(i * i),
		})
	}
	drawings := map[string]Drawing{
		"io-a_b":  Ratios(),
		"latency": OverCases([]string{report.FilesCases}, Sizes{"files", []string{"snapshot p50"}}),
		"scale":   OverSubjects(Sizes{"snapshots in a row", []string{"memory"}}),
		"storage": Bars("stored", "store cpu", "restore cpu"),
	}
	reports := map[string]*report.Report{"io-a_b": inOut, "latency": latency, "scale": scale, "storage": storage}
	for name, r := range reports {
		require.NoError(t, r.Keep(), name)
		require.NoError(t, Save(r, drawings[name]), name)
		for _, theme := range []string{"light", "dark"} {
			svg, err := os.ReadFile(filepath.Join(dir, name+"-"+theme+".svg"))
			require.NoError(t, err)
			require.NotContains(t, string(svg), "<text", name)
			require.Contains(t, string(svg), `<use xlink:href="#g`)
			require.Contains(t, string(svg), "Linux 6.1 &lt;x&gt;")
			wellFormed(t, svg)
		}
	}
}

func wellFormed(t *testing.T, doc []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestTicks(t *testing.T) {
	even := func(least, most float64) (out []string) {
		for _, tick := range evenTicks(least, most) {
			out = append(out, tick.Label)
		}
		return out
	}
	logs := func(least, most float64) (out []string) {
		for _, tick := range logTicks(least, most) {
			if tick.Label != "" {
				out = append(out, tick.Label)
			}
		}
		return out
	}
	require.Equal(t, []string{"0", "20", "40", "60"}, even(0, 61))
	require.Equal(t, []string{"0", "0.5", "1"}, even(0, 1.2)[:3])
	require.Equal(t, []string{"0.5", "1", "2", "5", "10", "20"}, logs(0.4, 30))
	require.Equal(t, []string{"100", "1000", "10k", "100k", "1M"}, logs(90, 2e6))
}
