// Package scale is the suite of that name: it lets snapshots, mounts, files and bytes grow, and shows how time, memory
// and the store grow with them. A part lets one of these grow.
package scale
