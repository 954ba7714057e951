// Package daemon serves a sandbox.Home over a unix socket in the home, and is its client: both speak the sandbox.API.
//
// # Protocol
//
// HTTP/1.1. Every call is a POST to /v1/NAME, its request the JSON form of the API's request. The response is a sequence of
// JSON documents, one per line, of which the last has "result" or "error":
//
//	{"progress":{"stage":"store","files":12,"bytes":4096,"total":-1}}
//	{"change":{"kind":"M","path":"a",…}}
//	{"result":{…}}
//	{"error":{"class":"conflict","message":"conflict: workspace a is mounted at /mnt","errno":0}}
//
// A response that ends without either was cut off: ErrUnavailable. A client that goes away cancels its call. Only root and the
// user that runs the daemon may connect (SO_PEERCRED).
package daemon
