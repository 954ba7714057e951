// Package httpapi is the service as REST: sandboxes with named snapshots of their trees, volumes, templates and files, as
// the published clients of such services speak it (npm sandbox0). It is an adapter: a handler decodes, calls the service,
// and encodes. What the JSON looks like is in the types of wire.go, which the document of the API is made of, docs/openapi.yaml.
//
// # Nouns
//
//   - A sandbox is a workspace. It is running while it is mounted and not paused, and paused otherwise: what is not mounted
//     has nothing that runs. Claimed sandboxes are mounted at a place of the service.
//   - A volume is a workspace with the label that says so. It is no sandbox, and has neither states nor an end.
//   - A template is a snapshot with a name, or the empty tree, which is the template "default".
//   - A rootfs snapshot, or a snapshot of a volume, is a snapshot.
//   - The end of a sandbox is when it is destroyed, its soft end when it is paused; see expiry.go.
//
// What a workspace does not have, such as the end, is in labels of it that begin with "rest/"; see facts.go.
//
// # Answers
//
// An answer is {"success":true,"data":…}, an error {"success":false,"error":{"code":…,"message":…}} with the status that
// its class has in package api. Statuses that no class has: 404 and 405 of routes, 413, and 501 for what no file system
// has. The header X-Request-Id names the request.
//
// # Locks
//
//	watcher.mu (a leaf)   the watches of one connection
package httpapi
