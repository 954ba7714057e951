package holder

import "testing"

func TestByFault(t *testing.T) {
	for reason, want := range map[string]bool{
		"exit status 2": true, "exit status 0": false, "killed by SIGSEGV": true, "killed by SIGABRT, core dumped": true,
		"killed by SIGBUS": true, "killed by SIGKILL": false, "killed by SIGTERM": false, "": false, stuck: false,
	} {
		if got := (Death{Reason: reason}).ByFault(); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
}
