// Package daemon serves a sandbox.Home over a unix socket in the home, for the clients of package client. Package wire describes the
// protocol.
//
// Only root and the user that runs the daemon may connect (SO_PEERCRED).
package daemon
