package fs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/layers"
)

// TestNodesAreGivenBack has a program look at many more files than there is room for in memory: most are forgotten
// meanwhile, but nothing that programs use.
func TestNodesAreGivenBack(t *testing.T) {
	const dirs, files, most = 5, 2000, 3000
	before := roomForNodes
	roomForNodes = func() nodeRoom { return nodeRoom{most: most, least: 100} }
	defer func() { roomForNodes = before }()
	dir := t.TempDir()
	for d := range dirs {
		path := filepath.Join(dir, "upper", fmt.Sprint("d", d))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			if err := os.WriteFile(filepath.Join(path, fmt.Sprint("f", i)), []byte("contents\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, d := range []string{"work", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o, err := layers.New(filepath.Join(dir, "upper"), filepath.Join(dir, "work"), nil, layers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "m")
	m, err := New(t.Context(), o, at, Options{Logger: slog.New(slog.DiscardHandler), Transport: transportOfTest()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Unmount(false); err != nil {
			t.Error(err)
			_ = m.Unmount(true) // the first error counts
		}
		<-m.Done()
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if own, _ := o.Nodes(); own != 0 {
			t.Errorf("a closed overlay has %d nodes", own)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", `
		cd "$1/d0"
		exec 3< f1 4> new 5> gone 6< f2
		rm gone
		echo first >&4
		mkdir -p deep/er
		cd deep/er
		for round in 1 2 3; do find "$1" -type f -name 'f*' | wc -l; done
		readlink /proc/self/cwd /proc/self/fd/3 /proc/self/fd/4
		cat <&3; echo second >&4; cat ../../new
		echo lost >&5
		ls /proc/self/fd/6 -l > /dev/null; cmp ../../f2 /proc/self/fd/6 && pwd`, "sh", at)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("%d\n%[1]d\n%[1]d\n"+
		"%s/d0/deep/er\n%[2]s/d0/f1\n%[2]s/d0/new\ncontents\nfirst\nsecond\n%[2]s/d0/deep/er\n", dirs*files, at)
	if err != nil || string(out) != want {
		t.Errorf("%v, %s\nwant %s", err, out, want)
	}
	if noPrune.Load() {
		t.Skip("the kernel cannot be asked to forget")
	}
	// What it was asked for it gives back a moment later.
	own := int64(0)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if own, _ = o.Nodes(); own <= most {
			break
		}
	}
	if own > most || own == 0 {
		t.Errorf("%d nodes after a look at %d files, with room for %d", own, dirs*files, most)
	}
	t.Log(own, "nodes are left;", strings.Join(strings.Fields(fmt.Sprint(m.Requests())), " "))
}
