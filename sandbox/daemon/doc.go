// Package daemon serves a sandbox.Home over a unix socket and is its client.
package daemon
