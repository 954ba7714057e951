// Package workfiles makes calls on the files in mounted workspaces for the process that serves them and must not touch
// them: a child process of it does.
//
// The child is the program of the process itself, started under the name Name: there its main function calls Main.
// One child works for a home. It is started by the first call, and by the first one after it has ended, whatever ended
// it; it ends with its parent, which has the other end of its control socket.
//
// # Protocol
//
// Parent and child have a pair of unix sockets, through which the parent passes one end of another pair for each call.
// Nobody else can reach any of them. Messages on the socket of a call are
//
//	┌──────┬────────────────┬──────────┐
//	│ kind │ length, u32 LE │ contents │
//	└──────┴────────────────┴──────────┘
//
//	parent                              child
//	order: what to do, in JSON   ──▶    opens the root of the mount, which has the device that was named
//	                             ◀──    opened
//	looks whether the workspace
//	still has that device: go    ──▶    does it
//	data, …, end: of PutFile     ──▶
//	                             ◀──    item, … and data, …: parts of the result; ready: of WatchFiles
//	                             ◀──    result or fault, in JSON
//
// A device number that a file system has given up may be that of another workspace: so the child does nothing before
// the parent has looked at its records once more.
//
// The parent closes the socket of a call that is cancelled, and returns. The child notices, and undoes what was begun.
// If a system call of it hangs, because the workspace is paused or its disk does not answer, that thread stays until it
// is answered.
//
// # Bounds
//
// In the parent the calls of all workspaces are bounded, since each takes a socket, and watches by themselves. In the
// child those are that work, and may hang: at most 32 of a workspace, and of all as many as the workspace leaves
// free (package fairshare). A call that waits for its parent, which reads slowly or sends slowly, does not count, and
// has a buffer only.
//
// # Locks
//
// Server.mu, child.mu and gates.mu are leaves. See docs/LOCKS.md.
package workfiles
