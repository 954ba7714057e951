package main

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
)

// TestCharts draws a picture of each kind. Their text is shapes, which no program that lacks a font cuts off; what a program may want to
// read is in the description.
func TestCharts(t *testing.T) {
	dir := t.TempDir()
	made := func(suite string, transposed bool) *report {
		return &report{Suite: suite, dir: dir, Transposed: transposed, About: map[string]string{}, Machine: machine{Kernel: "6.1 <x>", Programs: map[string]string{"git": "2.39"}}}
	}
	inOut := made("io", true)
	for i, s := range []string{"ext4", ratioTo, alsoRatioTo, "snapfs dev", "snapfs uring"} {
		inOut.add(metric{Case: "a/b", Subject: s, Name: "untar", Unit: "s", Value: float64(i + 1)})
		inOut.add(metric{Case: "a/b", Subject: s, Name: "stat", Unit: "µs", Value: float64(5 - i)})
	}
	latency := made("latency", false)
	for _, size := range []string{"1000 files", "100000 files", "10000 files"} {
		latency.add(metric{Case: size, Subject: "snapfs", Name: "snapshot p50", Unit: "ms", Value: 4})
		latency.add(metric{Case: size, Subject: "btrfs", Name: "snapshot p50", Unit: "ms", Value: 5})
	}
	scale := made("scale", false)
	g := newGrown(scale, scaleParts()[0].name)
	for size := int64(1); size <= 10; size++ {
		g.add(size*1000, "memory", "MiB", float64(20*size))
	}
	g.fit("snapshots")
	storage := made("storage", false)
	for i := range 10 {
		storage.add(metric{Case: "C1", Subject: fmt.Sprintf("peer with a long name %d", i), Name: "stored", Unit: "MB", Value: float64(i * i)})
	}
	for name, r := range map[string]*report{"io-a_b": inOut, "latency": latency, "scale": scale, "storage": storage} {
		require.NoError(t, r.save(), name)
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

// TestMergeReplaces: figures without samples are not there twice after a merge; the later report counts.
func TestMergeReplaces(t *testing.T) {
	a := &report{Suite: "storage", About: map[string]string{}}
	a.add(metric{Case: "C1", Subject: "snapfs", Name: "stored", Value: 4})
	b := &report{Suite: "storage", About: map[string]string{}}
	b.add(metric{Case: "C1", Subject: "snapfs", Name: "stored", Value: 3})
	b.add(metric{Case: "C2", Subject: "snapfs", Name: "stored", Value: 9})
	a.merge(b)
	require.Len(t, a.Metrics, 2)
	require.InDelta(t, 3, a.Metrics[0].Value, 0)
}

func TestLeftToVerify(t *testing.T) {
	require.Equal(t, []int{15, 22, 29}, leftToVerify(15, 30, false))
	require.Equal(t, []int{1}, leftToVerify(1, 2, false))
	require.Equal(t, []int{1, 2}, leftToVerify(1, 3, false))
	require.Equal(t, []int{3, 4, 5}, leftToVerify(3, 6, true))
}

// TestBehind: a table has the best of each column in bold, and tells in what snapfs is behind.
func TestBehind(t *testing.T) {
	r := &report{Suite: "storage", About: map[string]string{"C4": "random files"}, Command: "go run ./bench storage"}
	for _, m := range []metric{
		{Subject: "snapfs", Name: "stored", Unit: "MB", Value: 221},
		{Subject: "snapfs create", Name: "stored", Unit: "MB", Value: 223},
		{Subject: "git gc", Name: "stored", Unit: "MB", Value: 220},
		{Subject: "snapfs", Name: "speed", Unit: "MB/s", Value: 9, More: true},
		{Subject: "git gc", Name: "speed", Unit: "MB/s", Value: 7, More: true},
	} {
		m.Case = "C4"
		r.add(m)
	}
	require.Equal(t, []string{"C4, stored: git gc 220 MB, snapfs 221"}, r.behind())
	var page bytes.Buffer
	r.printMarkdown(&page)
	require.Contains(t, page.String(), "`go run ./bench storage`")
	require.Contains(t, page.String(), "| | stored MB | speed MB/s |\n|-|-|-|\n| snapfs | 221 | **9.00** |\n| snapfs create | 223 |  |\n| git gc | **220** | 7.00 |\n")
	require.Contains(t, page.String(), "Where snapfs is behind: C4, stored: git gc 220 MB, snapfs 221.")
}
