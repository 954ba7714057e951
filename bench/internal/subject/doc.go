// Package subject defines what is measured.
//
// A Subject is snapfs used in one way, or a peer: its name, what it needs, and how it is opened. What it is opened as
// says what a suite can measure of it: a Store keeps the states of a history (suite storage), a Workspace has snapshots
// (latency, scale), a Mount is a tree that programs work on (io). Package peers has the systems of others, package
// snapfs our own.
package subject
