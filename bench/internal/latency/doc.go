// Package latency is the suite of that name: it runs operations on workspaces and snapshots, round by round, on the
// systems that offer them.
//
// A setting is a kind of workspace: how many files it has, how many change between two snapshots, and how many
// snapshots in a row come before. A run is one setting on one system. How times grow with the files is fitted
// (growth.go).
package latency
