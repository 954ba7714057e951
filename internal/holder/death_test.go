package holder

import "testing"

func TestByFault(t *testing.T) {
	for reason, want := range map[string]bool{
		"exit status 2": true, "exit status 0": false, "killed by SIGSEGV": true, "killed by SIGABRT, core dumped": true,
		"killed by SIGBUS": true, "killed by SIGKILL": false, "killed by SIGTERM": false, "": false, stuck: false,
		"exit status 2" + stuckToo: true, "exit status 0" + stuckToo: false, "killed by SIGSEGV" + stuckToo: true,
		"killed by SIGKILL" + stuckToo: false,
	} {
		if got := (Death{Reason: reason}).ByFault(); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
}

// TestDeathString: a daemon for which there was no process is told by why alone.
func TestDeathString(t *testing.T) {
	for want, d := range map[string]Death{
		"memfd_create: too many open files":   {Message: "memfd_create: too many open files"},
		"process 7: exit status 2: no memory": {PID: 7, Reason: "exit status 2", Message: "no memory"},
		"process 7: killed by SIGKILL":        {PID: 7, Reason: "killed by SIGKILL"},
	} {
		if got := d.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
