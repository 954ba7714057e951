// Package corpora builds what is stored: a corpus is a recipe for a history, a history is a sequence of states, and a
// state is a directory as a workspace looked at one time.
//
// Corpora are built once, onto a shelf, from the Go module proxy, the npm registry and Debian's packages alone.
// Everything in them is pinned by version, and times are those of the step, so that builds have the same digest, which
// the report tells and compares with that of the committed results. C5 changes with a point release of Debian 12,
// unless --mirror names a mirror that keeps old days; C2 and C3 hold programs for amd64.
package corpora
