// Package client is the client of a home's daemon: it speaks the protocol of package wire and implements api.API.
//
// It links neither the store nor the file system, so a program that uses it stays small and starts fast.
package client
