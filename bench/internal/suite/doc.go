// Package suite runs suites: a suite is a set of measurements with one report.
//
// An Env is what a suite is run with: the options of the command line, the scratch directory, the progress bar.
package suite
