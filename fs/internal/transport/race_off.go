//go:build !race

package transport

// raceDetector says that the race detector is on, see laneSet.raceOrder and device.raceOrder.
const raceDetector = false
