// Package caller carries who makes a call of the service, for those who serve it: the daemon puts a Caller into the
// context of each request, and adapters ask it what the request may do. Without one, the program itself asks, which may
// do everything.
package caller
