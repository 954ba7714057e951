// Package sandbox is the Go API of snapfs: workspaces, snapshots, sessions and their lifecycle.
package sandbox
