// Package daemon serves a sandbox.Home over a unix socket in the home, for the clients of package client. Package wire
// describes the protocol.
//
// The calls under way are bounded, by their kind (shares.go) and in each kind by the session that asks: followers of
// events and what takes long leave room for the rest. A call for which there is no room is answered with "busy" and has
// not begun: the client asks again. A follower is refused.
//
// Who asks is known by the credentials of the connection (access.go). Root and the user that runs the daemon may do
// everything. Others are refused, or bound to sessions (bound.go): what they may ask is checked and made a request of
// one of these before the home sees it, and they have a part of the connections and calls only.
package daemon
