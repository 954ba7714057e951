// Package cli is the command line of snapfs: copy-on-write workspaces that can be frozen, branched and exported.
//
// Each verb is one file: it parses flags, makes one request of [snapfs/sandbox/api.API] and prints the answer. All
// requests go to the daemon of a home directory through [snapfs/sandbox/client.Client]; connect.go starts the daemon if
// none runs.
//
//	program.go  entry, signals          exit.go     errors to exit codes
//	root.go     global flags            output.go   text, tables, JSON
//	connect.go  daemon: find or start   engine.go   what only the complete command has
//
// Two programs use this package. cmd/snapfs is complete. cmd/snapfs-client lacks the engine (store, file system,
// metrics), which takes longer to start than most verbs run. For verbs that need the engine, it runs the complete
// command.
//
// The result of a verb goes to standard output: an id, a table, or with --json one document (one per event for log and
// events). Everything else goes to standard error.
//
// An interrupt (SIGINT, SIGTERM, SIGHUP) cancels the request. A request that was undone exits with 130. One that was
// already committed prints its result as usual and exits with 0, so that the caller knows what exists. A daemon takes
// SIGHUP as the request to reload.
package cli
