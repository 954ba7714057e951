package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMergeReplaces: figures without samples are not there twice after a merge; the later report counts.
func TestMergeReplaces(t *testing.T) {
	a := &Report{Suite: "storage", About: map[string]string{}}
	a.Add(Metric{Case: "C1", Subject: "snapfs", Name: "stored", Value: 4})
	b := &Report{Suite: "storage", About: map[string]string{}}
	b.Add(Metric{Case: "C1", Subject: "snapfs", Name: "stored", Value: 3})
	b.Add(Metric{Case: "C2", Subject: "snapfs", Name: "stored", Value: 9})
	a.merge(b)
	require.Len(t, a.Metrics, 2)
	require.InDelta(t, 3, a.Metrics[0].Value, 0)
}

// TestBehind: a table has the best of each column in bold, and tells in what snapfs is behind.
func TestBehind(t *testing.T) {
	r := &Report{Suite: "storage", About: map[string]string{"C4": "random files"}, Command: "go run ./bench storage"}
	for _, m := range []Metric{
		{Subject: "snapfs", Name: "stored", Unit: "MB", Value: 221},
		{Subject: "snapfs create", Name: "stored", Unit: "MB", Value: 223},
		{Subject: "git gc", Name: "stored", Unit: "MB", Value: 220},
		{Subject: "snapfs", Name: "speed", Unit: "MB/s", Value: 9, More: true},
		{Subject: "git gc", Name: "speed", Unit: "MB/s", Value: 7, More: true},
	} {
		m.Case = "C4"
		r.Add(m)
	}
	require.Equal(t, []string{"C4, stored: git gc 220 MB, snapfs 221"}, r.behind())
	var page bytes.Buffer
	r.PrintMarkdown(&page)
	require.Contains(t, page.String(), "`go run ./bench storage`")
	require.Contains(
		t, page.String(),
		"| | stored MB | speed MB/s |\n|-|-|-|\n"+
			"| snapfs | 221 | **9.00** |\n| snapfs create | 223 |  |\n| git gc | **220** | 7.00 |\n",
	)
	require.Contains(t, page.String(), "Where snapfs is behind: C4, stored: git gc 220 MB, snapfs 221.")
}
