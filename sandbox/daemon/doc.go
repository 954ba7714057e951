// Package daemon serves a sandbox.Home over HTTP: over a unix socket in the home, for the clients of package client, and,
// if it is told to, at addresses of the network, for who has a token. Package wire describes the protocol. Services beside
// the calls, such as those of packages httpapi, mcp and statehttp, are given to it as handlers (service.go): it tells who
// asks, bounds their calls and records what is refused as it does with its own.
//
// The calls under way are bounded, by their kind (shares.go) and in each kind by the session that asks: followers of
// events and what takes long leave room for the rest. A call for which there is no room is answered with "busy" and has
// not begun: the client asks again. A follower is refused.
//
// Who asks on the socket is known by the credentials of the connection (access.go). Root and the user that runs the
// daemon may do everything. Others are refused, or bound to sessions (bound.go): what they may ask is checked and made a
// request of one of these before the home sees it, and they have a part of the connections and calls only.
//
// Who asks from the network is known by a token (auth.go), is bound to its session and its scopes, and can name nothing of
// the host (token.go). Its requests have a rate (tokenlimit.go), and
// addresses a share of the connections (visitors.go). What is refused is an event (audit.go).
package daemon
