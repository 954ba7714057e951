package lockorder

// Tree is the drawing: one line for each class, outer locks first, with its marks, where it is and what it is for. A
// line stands below that of the lock under which it is usually taken, or at the margin. What decides is which line
// comes first. Marks:
//
//	(many)   one goroutine may hold several
//	(leaf)   no lock is taken under it
const Tree = `
ClientConns (leaf)                   sandbox/client: transport.mu, connections to the daemon
DaemonServer (leaf)                  sandbox/daemon: server.mu, calls by name
DaemonShares (leaf)                  sandbox/daemon: shares.mu, calls under way by session
DaemonVisitors (leaf)                sandbox/daemon: visitors.mu, connections from the network by address
DaemonMeters (leaf)                  sandbox/daemon: meters.mu, what tokens and addresses have asked
DaemonAudit (leaf)                   sandbox/daemon: auditor.mu, refusals that are not written yet
MCPServers (leaf)                    sandbox/mcp: Handler.mu, servers by scopes
MCPSessions (leaf)                   sandbox/mcp: sessions.mu, when sessions were used
RESTWatcher (leaf)                   sandbox/httpapi: watcher.mu, watches of one connection
DockerVolume                         sandbox/dockerplugin: volume.mu, the one request that changes a volume
└─ DockerVolumes (leaf)              sandbox/dockerplugin: Plugin.mu, volumes by name
HomeClose                            sandbox: Home.closeMu, the call of Close
├─ HomeOps (many)                    sandbox: Home.ops, one per workspace: operations on it. Only one is waited for;
│  │                                 others are names that are not taken yet
│  └─ KernelLowers (many)            sandbox: Home.lowers, one per layer: the mount that overlays of the kernel stand on
│     ├─ Merge                       sandbox/internal/layerstore: Merger.mu, the one merge
│     └─ LiveUsers                   sandbox: live.users, the overlay of a mount is in use; for writing: it is closed
│        └─ LiveStack                sandbox: live.stackMu, what an overlay stands on; held while that is replaced
│           └─ LiveSealed (leaf)     sandbox: live.sealedMu, layers that are to come on top of it
├─ Home                              sandbox: Home.mu, mounts and calls under way
│  └─ Idler (leaf)                   sandbox: idler.mu
├─ HolderClient (leaf)               internal/holder: Client.mu, one exchange with the holder
├─ UnmountErrors (leaf)              sandbox: in Home.unmountAll
├─ Places (leaf)                     sandbox/internal/places: Places.mu, calls that work at a time
├─ HostProbe (leaf)                  sandbox: hostProbe.mu
├─ MountReader (leaf)                sandbox: mountReader.mu, the table of mounts that calls share
├─ TurnStats (leaf)                  sandbox: turnStats.mu, what turns changed
├─ CaptureStates (leaf)              sandbox: captureStates.mu, what the last captures of uppers have found
├─ HomeSize (leaf)                   sandbox: homeSize.mu
├─ Accounts (leaf)                   sandbox: accounts.mu, what workspaces may take
├─ Keys (leaf)                       sandbox/internal/keylock: Locks.mu
├─ WorkFiles (leaf)                  sandbox/internal/workfiles: Server.mu, the process for files
├─ WorkFileCalls (leaf)              sandbox/internal/workfiles: child.mu, calls that it has
├─ WorkFileGates (leaf)              sandbox/internal/workfiles: gates.mu, bounds of workspaces
├─ Yielder (leaf)                    sandbox/internal/yield: Yielder.mu
├─ ExtractLink                       sandbox/internal/extract: linked.mu, the names of one inode
│  ├─ ExtractDirs                    sandbox/internal/extract: dirs.mu, open directories
│  └─ ExtractTelling                 sandbox/internal/extract: extraction.telling, a caller's function runs under it
├─ ExtractPieces (leaf)              sandbox/internal/extract: pieces.mu, what is left of a file
├─ ExtractSkips (leaf)               sandbox/internal/extract: extraction.skips.mu
├─ Lanes                             fs/internal/transport: theLanes, made once
├─ Hub                               fs/internal/transport: hub.mu, devices; their watchdog
│  ├─ SchedIdle (leaf)               fs/internal/transport: schedIdle.mu
│  └─ Lane                           fs/internal/transport: lane.mu, what is queued in a ring
│     └─ Slots (leaf)                fs/internal/transport: slotStore.mu, memory of requests
├─ Removals (leaf)                   fs: removals.mu
├─ DeviceOrder (leaf)                fs/internal/transport: device.orderMu, for the race detector
├─ Restacking                        layers: Overlay.restacking, the one call of Restack or Rollback
│  └─ Closers                        layers: barrier.closers, who closes and opens the gate
│     └─ OverlayGate                 layers: the gate. Pause leaves it closed, and Resume opens it
│        └─ OverlayNames             layers: Overlay.names
│           └─ Node (many)           layers: node.lock; directories before what is in them, those further up first
│              └─ OverlayTree        layers: Overlay.tree
│                 ├─ CatchUp         layers: catchUp.mu, what becomes of nodes of an epoch that is over
│                 ├─ BlockMap (many) layers: blockMap.mu, which blocks are the upper's; the part above comes first
│                 ├─ Table           layers: table.mu, nodes
│                 │  └─ BlockTable   layers: blockTable.mu, which files are partial
│                 ├─ Capability      layers: capability.host, of one file
│                 │  └─ Capabilities (leaf)   layers: capabilities.mu
│                 ├─ GroupTables (leaf)       layers: groupTables.mu
│                 ├─ CopyUps (leaf)           layers: copyUps.mu
│                 ├─ Orphans (leaf)           layers: detachedSets.mu
│                 ├─ Listings (leaf)          layers: listings.mu
│                 ├─ Row (leaf)               layers: row.mu, of one descriptor
│                 ├─ Device (leaf)            layers: upper.deviceMu, the whiteout that others are links of
│                 ├─ LostData (leaf)          layers: lostData.mu
│                 ├─ Reaper (leaf)            layers: reaper.mu
│                 ├─ Ledger (leaf)            layers: ledger.mu, what inodes were counted with; the host is asked under it
│                 └─ ReadSet (leaf)           internal/readset: Set.mu, what programs have read
├─ Openers                           layers: barrier.mu, who is told that a gate is open
│  └─ WorkQueue                      fs/internal/transport: workQueue.mu, requests of a mount and kind that wait
│     └─ Pool (leaf)                 fs/internal/transport: pool.mu, threads of a kind
├─ Uppers                            sandbox/internal/uppers: Set.mu, numbers; held while the store reserves some, and
│  │                                 while images are searched for spaces in use
│  ├─ ReadyUppers (leaf)             sandbox/internal/uppers: pool.mu
│  └─ UnsyncedUppers (leaf)          sandbox/internal/uppers: unsynced.mu, uppers that may not be on the disk
├─ CatalogWriter                     sandbox/internal/catalog: Catalog.writer, one change; held while the store commits
├─ Lowers                            sandbox/internal/layerstore: Cache.mu, open layers; also taken under an overlay's
│  ├─ FDs (leaf)                     layers: fdCache.mu
│  ├─ SourceLayer (leaf)             layers: sourceStore.mu, what was seen of a directory of others
│  └─ Janitor (leaf)                 sandbox/internal/uppers: janitor.mu
├─ Storer                            sandbox/internal/layerstore: Storer.mu, layers that wait to be stored
├─ KernelProbes (leaf)               sandbox: Home.probes, one per upper: finding out whether an overlay of the kernel has it
├─ SquashCache (leaf)                squashfs: Cache.mu, unpacked blocks
├─ RefSet (leaf)                     squashfs: refSet.mu
└─ StoreClose                        chunkstore: Store.closeMu, the call of Close
   └─ StoreGC                        chunkstore: Store.gcMu, one collection or check
      ├─ LiveSet                     chunkstore: liveSet.mu, what manifests need; held while the index is read
      └─ StoreNumbers                chunkstore: Store.numMu, chunk numbers; held while some are reserved in the index
         ├─ StoreUpkeep              chunkstore: Store.upkeepMu, a rewrite of the journal or a merge of tables
         └─ StoreWriter              chunkstore: Store.writeMu, the one transaction; a caller's function runs under it
            ├─ Catalog               sandbox/internal/catalog: Catalog.mu, records in memory
            │  └─ IDs (leaf)         sandbox/internal/catalog: idSource.mu
            ├─ Followers             sandbox: followers.mu
            │  └─ Follower (leaf)    sandbox: follower.mu
            ├─ PackSync              chunkstore/internal/pack: Set.syncMu, one sync
            ├─ PackAppend            chunkstore/internal/pack: Set.appendMu, one append, or cut
            ├─ Pins                  chunkstore: pins.mu, what a collection leaves alone
            ├─ Ingest                chunkstore: Ingest.mu, an ingest and its encoders
            ├─ Loader                chunkstore: loader.mu, what is decoded ahead
            ├─ Packs (leaf)          chunkstore/internal/pack: Set.mu
            ├─ LRU (leaf)            chunkstore: lru.mu
            ├─ Flights (leaf)        chunkstore: blockCache.flightMu
            ├─ Sketches (leaf)       chunkstore/internal/sketch: Index.mu
            ├─ StoreState (leaf)     chunkstore: Store.stateMu
            ├─ StoreMerges (leaf)    chunkstore: merges.mu, what Badger logs of a merge
            ├─ StoreLine (leaf)      chunkstore: line.mu, transactions that wait
            └─ Share (leaf)          internal/fairshare: Pool.mu, who has how much of what a process shares
DaemonProgress                       sandbox/daemon: stream.progress, called by whatever works
└─ DaemonStream                      sandbox/daemon: stream.mu, writes to a client
   └─ DaemonConns (leaf)             sandbox/daemon: limited.mu, connections by user
`

// The classes, in the order of the tree.
type (
	ClientConns    struct{}
	DaemonServer   struct{}
	DaemonShares   struct{}
	DaemonVisitors struct{}
	DaemonMeters   struct{}
	DaemonAudit    struct{}
	MCPServers     struct{}
	MCPSessions    struct{}
	RESTWatcher    struct{}
	DockerVolume   struct{}
	DockerVolumes  struct{}
	HomeClose      struct{}
	HomeOps        struct{}
	KernelLowers   struct{}
	Merge          struct{}
	LiveUsers      struct{}
	LiveStack      struct{}
	LiveSealed     struct{}
	Home           struct{}
	Idler          struct{}
	HolderClient   struct{}
	UnmountErrors  struct{}
	Places         struct{}
	HostProbe      struct{}
	MountReader    struct{}
	TurnStats      struct{}
	CaptureStates  struct{}
	HomeSize       struct{}
	Accounts       struct{}
	Keys           struct{}
	WorkFiles      struct{}
	WorkFileCalls  struct{}
	WorkFileGates  struct{}
	Yielder        struct{}
	ExtractLink    struct{}
	ExtractDirs    struct{}
	ExtractTelling struct{}
	ExtractPieces  struct{}
	ExtractSkips   struct{}
	Lanes          struct{}
	Hub            struct{}
	SchedIdle      struct{}
	Lane           struct{}
	Slots          struct{}
	Removals       struct{}
	DeviceOrder    struct{}
	Restacking     struct{}
	Closers        struct{}
	OverlayGate    struct{}
	OverlayNames   struct{}
	Node           struct{}
	OverlayTree    struct{}
	CatchUp        struct{}
	BlockMap       struct{}
	Table          struct{}
	BlockTable     struct{}
	Capability     struct{}
	Capabilities   struct{}
	GroupTables    struct{}
	CopyUps        struct{}
	Orphans        struct{}
	Listings       struct{}
	Row            struct{}
	Device         struct{}
	LostData       struct{}
	Reaper         struct{}
	Ledger         struct{}
	ReadSet        struct{}
	Openers        struct{}
	WorkQueue      struct{}
	Pool           struct{}
	Uppers         struct{}
	ReadyUppers    struct{}
	UnsyncedUppers struct{}
	CatalogWriter  struct{}
	Lowers         struct{}
	FDs            struct{}
	SourceLayer    struct{}
	Janitor        struct{}
	Storer         struct{}
	KernelProbes   struct{}
	SquashCache    struct{}
	RefSet         struct{}
	StoreClose     struct{}
	StoreGC        struct{}
	LiveSet        struct{}
	StoreNumbers   struct{}
	StoreUpkeep    struct{}
	StoreWriter    struct{}
	Catalog        struct{}
	IDs            struct{}
	Followers      struct{}
	Follower       struct{}
	PackSync       struct{}
	PackAppend     struct{}
	Pins           struct{}
	Ingest         struct{}
	Loader         struct{}
	Packs          struct{}
	LRU            struct{}
	Flights        struct{}
	Sketches       struct{}
	StoreState     struct{}
	StoreMerges    struct{}
	StoreLine      struct{}
	Share          struct{}
	DaemonProgress struct{}
	DaemonStream   struct{}
	DaemonConns    struct{}
)
