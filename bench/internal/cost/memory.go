package cost

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ResetPeak makes Peak of this process begin again.
func ResetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// Peak is the most resident memory that a process has had, in bytes.
func Peak(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("the kernel does not tell the peak of memory"))
}
