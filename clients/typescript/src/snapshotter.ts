import { type CallOptions, Client, type ClientOptions } from './client.js'
import { invalid, NotFoundError } from './errors.js'
import { parseRef, type SnapshotRef } from './ref.js'

/** A snapshot of a workspace. */
export interface SnapshotInfo {
  ref: SnapshotRef
  id: string
  workspace: string
  session: string
  name?: string
  description?: string
  parent?: string
  /** "sealed": frozen and durable; "stored": also in the store. */
  state: 'sealed' | 'stored'
  createdAt: Date
  expiresAt?: Date
}

/** A workspace that was made of a snapshot. */
export interface WorkspaceInfo {
  id: string
  session: string
  origin?: string
  mountpoint?: string
}

export interface SnapshotOptions extends CallOptions {
  name?: string
  description?: string
  /** After so many seconds the snapshot is deleted by itself. */
  ttlSeconds?: number
  /** Freezes the workspace's processes for the moment, if it knows their control group. */
  consistent?: boolean
}

export interface DeriveOptions extends CallOptions {
  /** Name of the new workspace; without one it gets one. */
  name?: string
  /** Directory of this machine to mount it at; over the socket only. */
  mountpoint?: string
}

export interface ListOptions extends CallOptions {
  /** 100 by default, and at most. None for 0 and less. */
  limit?: number
  /** The last ref or id of the page before. */
  after?: SnapshotRef | string
  /** Of another workspace than the Snapshotter's; "" for all of the session. */
  workspace?: string
}

export interface SnapshotterOptions extends ClientOptions {
  /** Name of the workspace that is frozen; a path inside its mount is none. */
  workspace: string
  /** In the place of the options of a client. */
  client?: Client
}

/** What the daemon tells of a snapshot. */
interface Snapshot {
  id: string
  workspace: string
  session: string
  name?: string
  description?: string
  parent?: string
  state: 'sealed' | 'stored'
  created_at: string
  expires_at?: string
  ref: SnapshotRef
}

interface Workspace {
  id: string
  session: string
  origin?: string
  mountpoint?: string
}

/**
 * Freezes a workspace, and makes new workspaces of what was frozen. restore and branch never change the workspace: they make
 * a new one. What belongs to another session is refused unless the call says allowCrossSession.
 */
export class Snapshotter {
  readonly workspace: string
  readonly client: Client

  constructor(options: SnapshotterOptions) {
    this.workspace = options.workspace
    this.client = options.client ?? new Client(options)
  }

  /** Freezes the present state. When it returns, the snapshot survives a loss of power. */
  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotRef> {
    const { name, description, ttlSeconds, consistent } = options
    if (ttlSeconds !== undefined && !(ttlSeconds > 0)) throw invalid('ttlSeconds is not greater than 0')
    const made = await this.client.changing<Snapshot>(
      'snapshot',
      {
        workspace: this.workspace,
        ...(name !== undefined && { name }),
        ...(description !== undefined && { description }),
        ...(ttlSeconds !== undefined && { ttl: Math.round(ttlSeconds * 1e9) }),
        ...(consistent && { consistent }),
      },
      options,
      (s) => this.client.call('delete', { ref: s.id }, crossing(options))
    )
    return parseRef(made.ref)
  }

  /** Makes a new workspace of a snapshot, {origin}-restored-{short}. */
  async restore(ref: SnapshotRef | string, options: DeriveOptions = {}): Promise<WorkspaceInfo> {
    return this.derive('restore', ref, options)
  }

  /** Makes a new workspace of a snapshot, {origin}-branch-{short}. */
  async branch(ref: SnapshotRef | string, options: DeriveOptions = {}): Promise<WorkspaceInfo> {
    return this.derive('branch', ref, options)
  }

  /** Lists snapshots, the newest last. */
  async list(options: ListOptions = {}): Promise<SnapshotInfo[]> {
    const { limit = 100, after, workspace = this.workspace } = options
    options.signal?.throwIfAborted()
    if (!Number.isSafeInteger(limit)) throw invalid('limit is no whole number')
    if (limit <= 0) return []
    const page = await this.client.call<{ snapshots: Snapshot[] }>(
      'snapshots',
      {
        limit: Math.min(limit, 100),
        ...(workspace !== '' && { workspace }),
        ...(after !== undefined && { after: isID(after) ? after : parseRef(after).ref.snapshot }),
      },
      options
    )
    return page.snapshots.map(describe)
  }

  /** Deletes a snapshot, and the documents that are tied to it. Idempotent. What is deleted when it is aborted stays so. */
  async delete(ref: SnapshotRef | string, options: CallOptions = {}): Promise<void> {
    await this.client.changing('delete', { ref: JSON.stringify(parseRef(ref)) }, options)
  }

  /** Describes a snapshot; undefined if it is gone. */
  async show(ref: SnapshotRef | string, options: CallOptions = {}): Promise<SnapshotInfo | undefined> {
    const named = isID(ref) ? ref : JSON.stringify(parseRef(ref))
    try {
      const shown = await this.client.call<{ snapshot?: Snapshot }>('show', { ref: named }, options)
      return shown.snapshot && describe(shown.snapshot)
    } catch (error) {
      if (error instanceof NotFoundError) return undefined
      throw error
    }
  }

  private async derive(how: 'restore' | 'branch', ref: SnapshotRef | string, options: DeriveOptions): Promise<WorkspaceInfo> {
    const { name, mountpoint } = options
    const made = await this.client.changing<Workspace>(
      how,
      {
        snapshot: JSON.stringify(parseRef(ref)),
        ...(name !== undefined && { name }),
        ...(mountpoint !== undefined && { mountpoint, make_mountpoint: true }),
      },
      options,
      async (w) => {
        if (mountpoint !== undefined) await this.client.call('unmount', { workspace: w.id, force: true }, crossing(options))
        await this.client.call('destroy', { ref: w.id, now: true }, crossing(options))
      }
    )
    const { id, session, origin, mountpoint: at } = made
    return { id, session, ...(origin !== undefined && { origin }), ...(at !== undefined && { mountpoint: at }) }
  }
}

/** What of the options of a call is for the one that undoes it: not the signal. */
function crossing(options: CallOptions): CallOptions {
  return options.allowCrossSession ? { allowCrossSession: true } : {}
}

function isID(ref: SnapshotRef | string): ref is string {
  return typeof ref === 'string' && !ref.trimStart().startsWith('{')
}

function describe(s: Snapshot): SnapshotInfo {
  return {
    ref: parseRef(s.ref),
    id: s.id,
    workspace: s.workspace,
    session: s.session,
    state: s.state,
    createdAt: new Date(s.created_at),
    ...(s.name !== undefined && { name: s.name }),
    ...(s.description !== undefined && { description: s.description }),
    ...(s.parent !== undefined && { parent: s.parent }),
    ...(s.expires_at !== undefined && { expiresAt: new Date(s.expires_at) }),
  }
}
