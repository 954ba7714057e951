// Command bench measures snapfs beside the tools that people would use instead, on corpora that anyone can
// rebuild.
//
// Nouns: a suite is a set of measurements with one report; a corpus is a sequence of states, each a
// directory as a workspace looked at one time; a subject is what is measured, snapfs or a peer;
// a metric is one figure: suite, case (a corpus, a size), subject, name, unit, value.
//
// Corpora are built once, into the cache, from the Go module proxy, the npm registry and Debian's packages alone
// (corpus*.go). Everything in them is pinned by version, and times are those of the step, so that builds
// have the same digest, which the report tells and compares with that of the committed results. C5 changes with a point release of
// Debian 12, unless --mirror names one that keeps old days; C2 and C3 hold programs for amd64.
//
// Peers are found on the PATH (peer_*.go); one that is missing is named in the report. A report is printed as a table and
// written as JSON and as SVG charts for light and dark pages, after each subject, so that an interrupted run can be
// resumed. Reports can be compared (compare.go): the exit code tells whether something of snapfs's got worse.
//
// All that a run makes lies in a scratch directory that its owner holds locked, and everything it starts has the directory's name in
// its environment: from these two the guard finds mounts, loop devices and processes, at the end of a run, at a
// second interrupt, and in the next run if this one was killed.
//
// The suite io (io*.go) runs programs on mounted trees: a fixture is the tree that all systems have as their lower, a system
// is a way to put something writable over it, a session is a sequence of workloads in one fresh mount. Rounds go through
// the sessions, and in each through the systems in turn. snapfs is the real daemon over a stored snapshot. Every mount
// belongs to a session, which unmounts it whatever happened.
//
// The suite latency (latency*.go) runs operations on workspaces and snapshots, round by round, on systems that offer them; a holder is one
// workspace of one. scale (scale.go) lets snapshots, mounts, files and bytes grow. Both fit how figures grow (curve.go).
//
// A suite is added as a file with a function that returns a suite, and a line in suites.
package main
