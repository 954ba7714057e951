package transport

// AbortConnection is abortConnection, for tests that mount in a process of its own.
var AbortConnection = abortConnection
