import type { Snapshot, SnapshotLocation, SnapshotManifest, SnapshotStorage } from '@strands-agents/sdk'

import { Client, type ClientOptions, failure } from './client.js'
import { CorruptError, invalid } from './errors.js'
import { parseRef, type SnapshotRef } from './ref.js'
import { type DeriveOptions, Snapshotter, type WorkspaceInfo } from './snapshotter.js'
import type { Response } from './transport.js'

export interface StorageOptions extends ClientOptions {
  /** In the place of the options of a client. */
  client?: Client
  /** The session of snapfs whose documents are meant, if it is another one; allowCrossSession is needed. */
  owner?: string
  allowCrossSession?: boolean
  /**
   * Ties every immutable snapshot of the agent's state to a snapshot of this workspace, which is taken before, so that state
   * and files travel together: restoreWorkspace makes the files as they were.
   */
  workspace?: string
  /** For how long a call may take, in milliseconds; a minute if it is not given. */
  timeout?: number
}

/** Names one snapshot of an agent's state: the latest without an id. */
export interface StateSnapshot {
  location: SnapshotLocation
  snapshotId?: string
}

/** A document that is tied to a snapshot of a workspace. */
export interface TiedDocument {
  location: SnapshotLocation
  /** undefined of the latest one */
  snapshotId?: string
  size: number
  updatedAt: Date
}

const identifier = /^[a-z0-9_-]+$/
const uuidV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/** Keeps what a SessionManager saves in the store of snapfs, deduplicated, and compressed as versions of each other. */
export class SnapfsSnapshotStorage implements SnapshotStorage {
  private readonly client: Client
  private readonly snapshotter: Snapshotter | undefined
  private readonly access: Record<string, string>
  private readonly timeout: number
  private readonly allowCrossSession: boolean

  constructor(options: StorageOptions = {}) {
    this.client = options.client ?? new Client(options)
    if (options.workspace !== undefined) {
      this.snapshotter = new Snapshotter({ workspace: options.workspace, client: this.client })
    }
    this.timeout = options.timeout ?? 60_000
    this.allowCrossSession = options.allowCrossSession ?? false
    this.access = {
      ...(this.client.session !== undefined && { session: this.client.session }),
      ...(options.owner !== undefined && { owner: options.owner }),
      ...(options.allowCrossSession && { allowCrossSession: 'true' }),
    }
  }

  async saveSnapshot(params: {
    location: SnapshotLocation
    snapshotId: string
    isLatest: boolean
    snapshot: Snapshot
  }): Promise<void> {
    const path = snapshotPath(params.location, params.isLatest ? undefined : params.snapshotId)
    const body = JSON.stringify(params.snapshot)
    if (params.isLatest || this.snapshotter === undefined) {
      await this.ask('PUT', path, {}, body)
      return
    }
    const files = await this.snapshotter.snapshot(this.options())
    try {
      await this.ask('PUT', path, { snapshot: files.ref.snapshot }, body)
    } catch (error) {
      await this.snapshotter.delete(files, this.options())
      throw error
    }
  }

  async loadSnapshot(params: StateSnapshot): Promise<Snapshot | null> {
    const response = await this.ask('GET', snapshotPath(params.location, params.snapshotId))
    return json(response) as Snapshot | null
  }

  async listSnapshotIds(params: { location: SnapshotLocation; limit?: number; startAfter?: string }): Promise<string[]> {
    const { location, limit } = params
    if (limit !== undefined && limit <= 0) return []
    let after = params.startAfter?.toLowerCase()
    if (after) checkUUID(after)
    const ids: string[] = []
    for (let more = true; more && (limit === undefined || ids.length < limit); after = ids.at(-1)) {
      const page = json(
        await this.ask('GET', `${scopePath(location)}/snapshots`, {
          ...(limit !== undefined && { limit: String(limit - ids.length) }),
          ...(after && { startAfter: after }),
        })
      ) as { snapshotIds: string[]; more: boolean }
      ids.push(...page.snapshotIds)
      more = page.more
    }
    return ids
  }

  async deleteSession(params: { sessionId: string }): Promise<void> {
    await this.ask('DELETE', sessionPath(params.sessionId))
  }

  async loadManifest(params: { location: SnapshotLocation }): Promise<SnapshotManifest> {
    return json(await this.ask('GET', `${scopePath(params.location)}/manifest`)) as SnapshotManifest
  }

  async saveManifest(params: { location: SnapshotLocation; manifest: SnapshotManifest }): Promise<void> {
    await this.ask('PUT', `${scopePath(params.location)}/manifest`, {}, JSON.stringify(params.manifest))
  }

  /** Gives the snapshot of a workspace that a snapshot of the agent's state is tied to; undefined if there is none. */
  async workspaceSnapshot(params: StateSnapshot): Promise<SnapshotRef | undefined> {
    const response = await this.ask('GET', snapshotPath(params.location, params.snapshotId))
    const id = response.header('snapfs-snapshot')
    if (id === undefined) return undefined
    const snapshotter = this.snapshotter ?? new Snapshotter({ workspace: '', client: this.client })
    return (await snapshotter.show(id, this.options()))?.ref
  }

  /**
   * Makes a new workspace of the files as they were when a snapshot of the agent's state was saved. undefined if it is not
   * tied to any.
   */
  async restoreWorkspace(params: StateSnapshot, options: DeriveOptions = {}): Promise<WorkspaceInfo | undefined> {
    options.signal?.throwIfAborted()
    const ref = await this.workspaceSnapshot(params)
    if (ref === undefined) return undefined
    const snapshotter = this.snapshotter ?? new Snapshotter({ workspace: ref.ref.workspace, client: this.client })
    return snapshotter.restore(ref, { ...this.options(), ...options })
  }

  /** Lists what was saved with a snapshot of a workspace. */
  async documents(ref: SnapshotRef | string): Promise<TiedDocument[]> {
    const named = JSON.stringify(parseRef(ref))
    const page = json(await this.ask('GET', '/api/v1/agent-documents', { snapshot: named })) as {
      documents: {
        agent_session: string
        kind: 'agent' | 'multiAgent'
        scope: string
        id?: string
        size: number
        updated_at: string
      }[]
    }
    return page.documents.map((d) => ({
      location: { sessionId: d.agent_session, scope: d.kind, scopeId: d.scope },
      ...(d.id !== undefined && { snapshotId: d.id }),
      size: d.size,
      updatedAt: new Date(d.updated_at),
    }))
  }

  private options() {
    return { signal: AbortSignal.timeout(this.timeout), allowCrossSession: this.allowCrossSession }
  }

  private async ask(
    method: 'GET' | 'PUT' | 'DELETE',
    path: string,
    query: Record<string, string> = {},
    body?: string
  ): Promise<Response> {
    const parameters = new URLSearchParams({ ...this.access, ...query }).toString()
    const response = await this.client.request({
      method,
      path: parameters === '' ? path : `${path}?${parameters}`,
      signal: AbortSignal.timeout(this.timeout),
      ...(body !== undefined && { body, headers: { 'content-type': 'application/json' } }),
    })
    const error = failure(response)
    if (error) throw error
    return response
  }
}

function json(response: Response): unknown {
  try {
    return JSON.parse(response.text)
  } catch (cause) {
    throw new CorruptError('corrupt', 'corrupt: the answer is no JSON', { cause })
  }
}

function checkIdentifier(id: string): string {
  if (!identifier.test(id)) {
    throw invalid(`identifier ${JSON.stringify(id).slice(0, 80)}: lower-case letters, digits, _ and - only`)
  }
  return id
}

function checkUUID(id: string): string {
  if (!uuidV7.test(id)) throw invalid(`${JSON.stringify(id).slice(0, 80)} is no UUIDv7`)
  return id
}

function sessionPath(sessionId: string): string {
  return `/api/v1/agent-sessions/${checkIdentifier(sessionId)}`
}

function scopePath(location: SnapshotLocation): string {
  const { sessionId, scope, scopeId } = location
  if (scope !== 'agent' && scope !== 'multiAgent') throw invalid(`scope ${JSON.stringify(scope)} is neither agent nor multiAgent`)
  return `${sessionPath(sessionId)}/scopes/${scope}/${checkIdentifier(scopeId)}`
}

function snapshotPath(location: SnapshotLocation, id: string | undefined): string {
  return `${scopePath(location)}/snapshots/${id === undefined ? 'latest' : checkUUID(id.toLowerCase())}`
}
