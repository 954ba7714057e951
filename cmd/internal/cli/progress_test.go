package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"snapfs/sandbox/api"
)

func TestDescribe(t *testing.T) {
	full := strings.Repeat("=", barWidth)
	none := strings.Repeat("-", barWidth)
	for _, c := range []struct {
		p         api.Progress
		text, bar string
	}{
		{
			api.Progress{Stage: "storing", Bytes: 1 << 20, Total: 4 << 20, Files: 3},
			"storing 1.0 MiB of 4.0 MiB, 3 files",
			"[" + full[:10] + none[10:] + "]",
		},
		{api.Progress{Stage: "reading", Bytes: 2048, Total: -1}, "reading 2.0 KiB", "/"},
		{api.Progress{Stage: "checking", Bytes: 7, Total: 7, Unit: "chunks"}, "checking 7 of 7 chunks", "[" + full + "]"},
		{api.Progress{Stage: "checking", Bytes: 9, Total: 7, Unit: "chunks"}, "checking 9 of 7 chunks", "[" + full + "]"},
		{api.Progress{Stage: "empty"}, "empty 0 B of 0 B", "[" + full + "]"},
		{api.Progress{Stage: api.StageWaiting, Total: -1}, api.StageWaiting, "/"},
	} {
		if got := describe(c.p); got != c.text {
			t.Errorf("%+v: got %q, want %q", c.p, got, c.text)
		}
		if got := bar(c.p, 1); got != c.bar {
			t.Errorf("%+v: got bar %q, want %q", c.p, got, c.bar)
		}
	}
}

// TestMeter: reports are drawn one over the other, within the width of the terminal, and the line is cleared at the end.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := startMeter(&out, func() int { return 12 })
		time.Sleep(drawEvery * 5 / 2)
		report := m.report()
		report(api.Progress{Stage: "reading", Bytes: 5, Total: -1})
		time.Sleep(drawEvery)
		report(api.Progress{Stage: "storing", Bytes: 5, Total: 10})
		time.Sleep(drawEvery)
		m.done()
		if got, want := out.String(), "\rreading 5 B\x1b[K\rstoring 5 B\x1b[K\r\x1b[K"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		out.Reset()
		m = startMeter(&out, func() int { return 0 })
		m.done()
		if out.Len() != 0 {
			t.Errorf("drawn without a report: %q", out.String())
		}
	})
	m := (&app{err: &bytes.Buffer{}}).newMeter()
	if m.report() != nil {
		t.Error("counts where nothing is drawn")
	}
	m.done()
}
