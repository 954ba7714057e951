// Package api is what the service of a home and its clients have in common: the types of requests and answers, names
// and references, events, classes of error, and the interface [API].
//
// It imports the standard library only, so that a client links no store and no file system. Package sandbox has the
// same names as aliases; Go programs that open a home themselves need that one alone.
package api
