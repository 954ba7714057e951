// Package catalog holds the records of a home: what is durable of its workspaces, layers and snapshots, and what else
// must survive the process. It knows no directory and no mount, and decides nothing that is not in the records.
//
// # Nouns
//
//   - A record is one JSON document in a bucket of the chunk store. Workspace, Snapshot and Layer are immutable once
//     they are in the catalog: a change replaces them, so callers may keep what they were given.
//   - A change is what one transaction does to the records. Update makes it durable, then visible; Stage and Show do so
//     in two steps, with Withdraw for a change that is not to be. Changes that are staged at the same time share a
//     transaction of the store: each is of workspaces whose locks its caller holds, and the layers that it names are
//     held before it is written.
//   - A holder is what names a layer: a workspace, a snapshot, or the layer above. A layer whose last holder goes is
//     removed by the transaction that removes the holder, and so are those below that only it held. Pin delays that.
//   - A stack is the way from a layer down to the root of the tree of layers.
//   - A form is how a layer is opened: by itself, or as the tier that stands for it and some of those below; see
//     tier.go.
//   - A merge job is a row of layers that one image is to stand for; see merge.go.
//
// # Buckets
//
//	bucket      key                 record
//	workspaces  name                Workspace
//	snapshots   id                  Snapshot
//	layers      id                  Layer
//	trash       number of an upper  empty: the directory is to be removed
//	events      workspace/id        Event, of package api; they expire (expireevents.go)
//	audit       /id                 Event that is of no workspace: of tokens, and of calls that were refused
//	tokens      id                  Token
//	renames     id                  Rename, of a workspace that has snapshots
//	positions   session/name        Position, of package api
//	packing     id of a layer       Attempts: it is being stored, or is parked
//	merges      manifest            empty: a merged image that no layer names yet
//	documents   owner/agent/kind/scope/name  Document of an agent's session
//	tied        snapshot/key    empty: the document with the key is tied to the snapshot
//	scopes      owner/agent/kind/scope       what was saved last there
//	owners      session         Documents: how many it has
//	meta        "last-id"           every id made later is greater, whatever the clock says then
//	meta        "home"              identity of the home, as in its marker
//
// Package uppers records in two more keys of meta, and in a bucket of its own, which numbers are in use. Workspaces,
// snapshots, layers and tokens are held in memory; the others are read when they are asked for. Records of documents change in
// transactions of their own, which look at what they need: they take no lock. A snapshot takes with it those that are
// tied to it (document.go).
//
// # Indices
//
// Every question that is asked per call is answered without looking at all records. type index holds them: lists of
// snapshots by workspace, by session, by name and by time of expiry; what each session's snapshots count and come to in
// bytes; and the tree of layers, whose nodes know what names them, how deep the stack below is, and how much of that is
// not stored. A change of a layer's parent or state is passed on to all that lies above. TestTwin holds every answer
// against one that looks at all records.
//
// # Locks, outermost first
//
//	Catalog.writer       one change, from its first look at the records until they have changed; the store commits
//	│                    under it, but for what is staged
//	└─ (the store's)
//	   ├─ Catalog.mu     the records in memory; never held while anything waits
//	   └─ idSource.mu    the newest id
//
// Functions that are called back within Update and Stage run under writer. They may ask the catalog, and must not
// change it but through the Change that they are given. Tell runs under writer, too. A loop over ListSnapshots or
// ListWorkspaces holds no lock.
package catalog
