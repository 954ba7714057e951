// Package takeover measures for how long programs in workspaces wait when the daemon is killed, replaced or upgraded.
//
// A program writes to a workspace and asks for attributes all the time, each time of the server. What is reported of an end
// of the daemon is the longest that one of its calls took around that, and how long it took until every mount had answered a
// call that began after the end.
package takeover
