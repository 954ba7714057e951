// Command bench measures snapfs beside the tools that people would use instead, on corpora that can be rebuilt.
//
// It is a module of its own, so that what draws its charts is no dependency of snapfs.
//
//	go run -C bench . all       all suites that finish within half an hour; the same as make bench
//	go run -C bench . --help    the rest
//
// Paths on its command line are relative to the directory bench. Committed results are in results.
//
// Nouns: a suite is a set of measurements with one report; a subject is what is measured, snapfs or a peer; a corpus is
// a sequence of states, each a directory as a workspace looked at one time; a metric is one figure.
//
//	main ─▶ storage, latency, scale, mountio, takeover, kernel
//	          ├─▶ suite                          what a suite is, and running one
//	          │     └─▶ chart ─▶ report          figures
//	          ├─▶ peers, snapfs ─▶ subject       what is measured
//	          └─▶ corpora                        what is stored
//
// Peers are found on the PATH; one that is missing is named in the report. A suite is added as a package with a
// function that returns a suite, and a line in suites (cli.go).
package main
