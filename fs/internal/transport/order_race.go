//go:build race

package transport

// tellOrder says that the race detector is on, see laneSet.order and device.order.
const tellOrder = true
