// Package statehttp is the storage of agents' sessions over HTTP, as agent frameworks have it: JSON documents by session,
// scope and id. It is an adapter: it decodes, calls the service, and encodes.
//
// # Routes
//
// Paths begin with /api/v1/agent-sessions/SESSION. A SCOPE is scopes/agent/ID or scopes/multiAgent/ID.
//
//	GET  PUT DELETE  SCOPE/snapshots/latest   the latest document
//	GET  PUT DELETE  SCOPE/snapshots/UUIDV7   an immutable one
//	GET              SCOPE/snapshots          ?limit= &startAfter=   {"snapshotIds":[…],"more":false}
//	GET  PUT         SCOPE/manifest           {"schemaVersion":"1.0","updatedAt":"2026-…"}
//	DELETE           (the session)            all of it
//
//	GET  /api/v1/agent-documents?snapshot=REF  {"documents":[…]}, those that are tied to a snapshot of a workspace
//
// Bodies of documents are the documents themselves. What is missing is null, a manifest that is missing the default one. PUT
// with ?snapshot=REF ties a document to a snapshot of a workspace; GET tells it in the header Snapfs-Snapshot.
//
// The session of snapfs that asks is that of the token, or of the user of the socket, who may choose with ?session=. With
// ?owner= and ?allowCrossSession=true the documents of another session are meant, where the caller may do that. Parameters
// that are not known are refused. A token needs scope read for GET, and snapshots for the others.
//
// # Errors
//
// An error is {"error":{"class":"not_found","message":"…"}} with the status that the class has in package api; 404, 405, 413
// and 415 say what they say in HTTP.
package statehttp
