// Package wire is the protocol between the daemon of a home and its clients.
//
// # Protocol
//
// HTTP/1.1. Every call is a POST to /v1/NAME, its request the JSON form of the API's request. The response is a
// sequence of JSON documents, one per line, of which the last has "result" or "error":
//
//	{"progress":{"stage":"store","files":12,"bytes":4096,"total":-1}}
//	{"change":{"kind":"M","path":"a",…}}
//	{"file":{"path":"a","mode":33188,…}}
//	{"document":{"agent_session":"chat",…}}
//	{"data":"base64 of a piece of what is read"}
//	{"event":{"id":"0199…","kind":"snapshotted",…}}
//	{"match":{"path":"/a","line":3,"text":"…"}}
//	{"ready":true}
//	{"watched":{"kind":"modified","path":"/a",…}}
//	{"result":{…}}
//	{"error":{"class":"conflict","message":"conflict: workspace a is mounted at /mnt","errno":0}}
//	{"error":{"class":"unavailable","message":"unavailable: 96 calls are under way, …","busy":true}}
//
// The body of put-file is what the file is to have, and its request is in the header Snapfs-Request. A client that sends
// "Expect: 100-continue" is told to go on when the call has begun; without that, it may have sent the body in vain.
//
// Each side tells in headers which versions of the protocol it speaks, and of which version its program is. Where no
// version is common, and where a daemon does not know a call or a field, the error says who is older, and what to do.
//
// With "busy" the daemon has no room for the call, which has not begun: the client asks again.
//
// A response that ends without either was cut off: ErrUnavailable. A client that goes away cancels its call.
//
// A client that wants to interrupt a call that changes something must learn whether it took effect. It names the call
// in the header Snapfs-Call, posts {"call":NAME} to /v1/cancel on another connection (again while the answer is
// {"found":false}: the cancellation may overtake the call), and waits for the call's own last line: an error of class
// canceled, or the result if it was too late.
package wire
