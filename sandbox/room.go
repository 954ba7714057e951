package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// fileLimit is how many descriptors the process may have; Go has raised it as far as it may be.
func fileLimit() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int64(min(r.Cur, 1<<30))
}

// openFiles counts the process's descriptors; false where the kernel, older than 6.2, does not tell without a listing.
func openFiles() (int64, bool) {
	st, err := os.Stat("/proc/self/fd")
	if err != nil || st.Size() == 0 {
		return 0, false
	}
	return st.Size(), true
}

// roomForMount refuses a mount that would take the descriptors which the store, the API and the mounts that are there
// need: a quarter of all is kept back. Each mount takes three, and one for each layer that is not stored yet.
func roomForMount() error {
	limit := fileLimit()
	used, ok := openFiles()
	for tries := 0; ok && used > limit-limit/4; tries++ {
		if tries == 3 {
			return fmt.Errorf("%w: %d of the daemon's %d descriptors are in use: "+
				"unmount something, or start it with a higher limit (ulimit -n)",
				ErrUnavailable, used, limit)
		}
		layers.GiveBack()
		used, ok = openFiles()
	}
	return nil
}

// idleLowers is how many layers stay open after their last user is gone: a sealed one holds a descriptor.
func idleLowers() int { return int(min(256, max(8, fileLimit()/16))) }
