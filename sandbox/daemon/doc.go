// Package daemon serves a sandbox.Home over a unix socket in the home, for the clients of package client. Package wire
// describes the protocol.
//
// The calls under way are bounded, by their kind (shares.go) and in each kind by the session that asks: followers of
// events and what takes long leave room for the rest. A call for which there is no room is answered with "busy" and has
// not begun: the client asks again. A follower is refused.
//
// Only root and the user that runs the daemon may connect (SO_PEERCRED).
package daemon
