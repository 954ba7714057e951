package mcp

import "snapfs/sandbox/api"

// Service is what the tools call: *sandbox.Home and *client.Client implement it.
type Service interface {
	api.API
	api.Positions
}

// Start says where an agent begins.
type Start struct {
	// Workspace is where the agent begins that has no position yet; it is made if it is missing. "": the only one of the
	// session, or a fresh one if there is none.
	Workspace string
	// Source is what a workspace that is made has at first, as in api.CreateRequest; "" for nothing.
	Source string
	// State names the position of the agent. "": one for each Workspace.
	State string
}

// position is the name of the position. No state can be taken for a workspace: see ValidState.
func (s Start) position() string {
	switch {
	case s.State != "":
		return s.State
	case s.Workspace != "":
		return "workspace:" + s.Workspace
	}
	return "workspace"
}

// Caller is who calls tools.
type Caller struct {
	Access api.Access
	Scopes []api.Scope // what it may do
	Start  Start
	// Key tells callers apart over HTTP: a session of the protocol is of one.
	Key string
}
