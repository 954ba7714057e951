//go:build !race

package fs

// tellOrder says that the race detector is on, see laneSet.order.
const tellOrder = false
