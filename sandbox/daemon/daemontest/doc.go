// Package daemontest starts a daemon with a listener of the network in the process of a test, and asks it.
package daemontest
