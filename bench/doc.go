// Command bench measures snapfs beside the tools that people would use instead, on corpora that anyone can
// rebuild.
//
// Nouns: a suite is a set of measurements with one report; a corpus is a sequence of states, each a
// directory as a workspace looked at one time; a subject is what is measured, snapfs or a peer;
// a metric is one figure: suite, case (a corpus, a size), subject, name, unit, value.
//
// Corpora are built once, into the cache, from the Go module proxy and the npm registry alone
// (corpus*.go). Peers are found on the PATH (peer_*.go); one that is missing is named in the report. A report is
// printed as a table and written as JSON and, per case, as SVG charts for light and dark pages.
//
// The suite io (io*.go) runs programs on mounted trees: a fixture is the tree that all systems have as their lower, a system
// is a way to put something writable over it, a session is a sequence of workloads in one fresh mount. Rounds go through
// the sessions, and in each through the systems in turn. snapfs is the real daemon over a stored snapshot. Every mount
// belongs to a session, which unmounts it whatever happened.
//
// A suite is added as a file with a function that returns a suite, and a line in suites.
package main
