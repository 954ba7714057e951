// Package mcp serves workspaces to agents over the Model Context Protocol (specification 2026-07-28 and those before
// it), with the official Go SDK: over the standard streams of a process, or over HTTP. It is an adapter of package api:
// it decodes, calls the service, and words the answer so that a model can go on with it.
//
// # Nouns
//
//   - A tool is what a model can call. Each is one function in one of the files below; tool.go has what all of them share.
//   - The workspace at hand is the one that the tools work on. A restore or branch makes a new workspace, and the tools
//     work on that from then on.
//   - A position is where that is recorded, see api.Positions: an agent that is started anew goes on in the workspace
//     that was at hand. It is of a session of snapfs, and named by the workspace in which the agent began, or by the state
//     that the caller names.
//   - An agent is who calls tools: its rights, its position, and the workspace at hand.
//
// # Resumption
//
// When an agent calls a tool, the workspace at hand may be gone:
//
//	it is there                       the same
//	it is gone, and has snapshots     restored from the newest, under the same name
//	neither                           a fresh one: under its name if the agent has just begun, else under a new name
//
// The result of the call says so if it is not the same.
//
// # Files
//
//	server.go   the server and its tools     agent.go      the workspace at hand
//	tool.go     what all tools share         errors.go     errors as a model can use them
//	stdio.go    standard streams             http.go       HTTP; sessions.go: sessions of older protocols
//	snapshot.go move.go diff.go              snapshots
//	read.go     write.go  list.go search.go  files
//
// # Bounds
//
// Nothing that a tool answers is larger than maxBytes and some hundred bytes for each line, whatever is asked; a result
// that was cut says so, and how to go on. A request has maxRequest bytes at most. Over HTTP, requests of the present
// protocol have no session; those of older protocols do, maxOwnSessions for each caller, and an idle one ends.
package mcp
