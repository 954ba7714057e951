//go:build race && amd64

package lockorder

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// fault ends the process. Tests replace it.
var fault = func(text string) {
	go panic(text) // in a goroutine of its own, as servers recover the panics of their handlers
	select {}
}

// trace has the call stack under which a lock was taken, a line for each caller.
func (h *held) trace() string {
	var b strings.Builder
	frames := runtime.CallersFrames(h.callers[:slices.Index(append(h.callers[:], 0), 0)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.PC != 0 && !strings.Contains(f.Function, "/lockorder.(*") {
			fmt.Fprintf(&b, "\t%s %s:%d\n", f.Function, f.File, f.Line)
		}
	}
	return b.String()
}
