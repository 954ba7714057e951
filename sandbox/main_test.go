package sandbox_test

import (
	"os"
	"testing"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
	"snapfs/sandbox/internal/mountns"
	"snapfs/sandbox/internal/workfiles"
)

func TestMain(m *testing.M) {
	if os.Args[0] == mountns.Name { // sandbox.IsMounter would have all tests mount by such processes
		os.Exit(sandbox.RunMounter())
	}
	treewalk.Child()
	workfiles.Child()
	killChild()
	killApplyChild()
	crashChild()
	kernelChild()
	sandbox.HoldChild()
	os.Exit(m.Run())
}

func openHome(t *testing.T, dir string, opts sandbox.Options) *sandbox.Home {
	t.Helper()
	h, err := sandbox.Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}
