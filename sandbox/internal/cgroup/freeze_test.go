package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestFreezeForking freezes real groups whose processes start others all the time, also when the freezer of version 1 was
// told otherwise meanwhile, as it is when it loses what it was told.
func TestFreezeForking(t *testing.T) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range Mounted(string(mountinfo)) {
		dir, err := os.MkdirTemp(h.mount, "snapfs-freeze-")
		if err != nil {
			if os.Getuid() != 0 {
				t.Skip("groups are made as root")
			}
			t.Fatal(err)
		}
		g := Group(dir)
		control, _, err := g.files()
		if err != nil {
			t.Fatal(err)
		}
		loop := exec.Command("sh", "-c", `echo $$ >`+filepath.Join(dir, "cgroup.procs")+
			` && while :; do for i in 1 2 3 4; do /bin/true & done; wait; done`)
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Thaw(); err != nil {
				t.Error(err)
			}
			_ = loop.Process.Kill()
			_ = loop.Wait() // killed
			for end := time.Now().Add(time.Minute); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s stays", dir)
					break
				}
			}
		})
		for len(g.Processes()) == 0 {
			time.Sleep(time.Millisecond)
		}
		for range 50 {
			thawed := make(chan error, 1)
			if filepath.Base(control) == "freezer.state" {
				go func() { thawed <- g.Thaw() }()
			} else {
				thawed <- nil
			}
			if err := g.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-thawed; err != nil {
				t.Fatal(err)
			}
			if err := g.Thaw(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
