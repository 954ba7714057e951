// Package failpoint names the moments between two durable steps, where a crash leaves something to recover from.
//
// The code under test calls At after each step that changes what is on the disk. In production nobody listens, and a
// point costs a comparison with nil. A crash test gives a listener, which takes the process or the power away, fills
// the disk, or looks at what a crash would leave. Points are told while locks are held, by several goroutines at once.
package failpoint

// Func listens to points; nil is nobody.
type Func func(point string)

// At tells that a step is done, by what is true now, such as "pack synced".
func (f Func) At(point string) {
	if f != nil {
		f(point)
	}
}
