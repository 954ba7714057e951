// Package cli is the command line of snapfs: copy-on-write workspaces that can be frozen, branched and shipped.
//
// A verb is one file: it parses flags, makes one request of [snapfs/sandbox/api.API], prints the answer. All requests
// go to the daemon of a home directory through [snapfs/sandbox/client.Client]; connect.go starts it where none is
// there.
//
//	program.go  entry, signals          exit.go     errors to exit codes
//	root.go     global flags            output.go   text, tables, JSON
//	connect.go  daemon: find or start   engine.go   what only the complete command has
//
// Two programs are made of it. cmd/snapfs is complete. cmd/snapfs-client lacks the engine (store, file system,
// metrics), which takes several times as long to start as most verbs last; for verbs that need it, it runs the complete
// command.
//
// What a verb made is its result on standard output (an id, a table, or with --json one document, or one for each
// event); everything else it has to say goes to standard error.
//
// An interrupt (SIGINT, SIGTERM, SIGHUP) cancels the request. A request that was undone ends with 130; one that was
// already committed prints its result as always and ends with 0, so that the caller knows what exists.
package cli
