// Package engine builds and runs the complete command of snapfs, as its users do: a daemon with a connection to it, or
// the command line on a home.
package engine
