// Package scratch keeps the directories of a run and removes all that a run leaves.
//
// All that a run makes lies in a scratch directory that its owner holds locked, and everything it starts has the
// directory's name in its environment (Mark). From these two a sweep finds mounts, loop devices and processes: at the
// end of a run, at a second interrupt, and in the next run if this one was killed.
package scratch
