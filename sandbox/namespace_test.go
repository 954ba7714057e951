package sandbox

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"snapfs/sandbox/internal/catalog"
)

// TestNamespaceProof holds that a record finds its mount namespace again, and no other that has its number.
func TestNamespaceProof(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", "echo; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Skip("no mount namespace can be made here")
	}
	h := &Home{}
	h.readOwnNamespace()
	v, err := h.viewOfProcess(cmd.Process.Pid)
	if err != nil || v.own() {
		t.Fatal(v, err)
	}
	without := v
	without.id = 0
	byProcess := h.recorded(without)
	if want := proofProcess + strconv.Itoa(v.pid) + ":"; !strings.Contains(byProcess, want) {
		t.Fatalf("%s has no %s", byProcess, want)
	}
	finds := func(what, name string, apart, want bool) {
		t.Helper()
		got, ok := h.viewRecorded(&catalog.Mount{Namespace: name, Apart: apart})
		if ok != want || ok && apart && got.pid != v.pid || ok && !apart && !got.own() {
			t.Errorf("%s (%s, apart: %t): %+v, %t", what, name, apart, got, ok)
		}
	}
	finds("its process", byProcess, true, true)
	finds("a process of the same number", byProcess+"1", true, false)
	if v.id != 0 {
		byID := h.recorded(v)
		finds("its id", byID, true, true)
		finds("another id", byID+"1", true, false)
		// The number of the daemon's own namespace may have been that of another, too.
		finds("its own number, another id", h.boot+" "+h.ns+" "+proofID+"1", true, false)
		finds("of a daemon in another namespace", byID+"1", false, true)
	}
	finds("without a proof", h.boot+" "+v.ns, true, false)
	finds("of an earlier boot", "earlier "+v.ns, true, false)
	finds("of an earlier boot", "earlier "+v.ns, false, true)
	finds("its own", h.recorded(view{}), false, true)
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	finds("one that is gone", byProcess, true, false)
}
