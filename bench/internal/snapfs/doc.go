// Package snapfs has the ways in which snapfs is measured: as a store of states in this process, mounted or made from
// directories; as a workspace that a daemon serves; and as a mount over either transport, used by the command line.
package snapfs
