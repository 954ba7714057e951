import type { Snapshot } from '@strands-agents/sdk'
import { v7 as uuidV7 } from 'uuid'
import { describe, expect, inject, it } from 'vitest'

import {
  Client,
  ConflictError,
  InvalidError,
  NotFoundError,
  RefusedError,
  SnapfsSnapshotStorage,
  UnavailableError,
} from '../src/index.js'
import { fresh, ways } from './connect.js'

function state(text: string): Snapshot {
  return { scope: 'agent', schemaVersion: '1.0', createdAt: new Date().toISOString(), data: { text }, appData: {} }
}

describe.each(ways)('storage over $way', ({ options }) => {
  const storage = () => new SnapfsSnapshotStorage(options())
  const place = () => ({ sessionId: fresh('s'), scope: 'agent' as const, scopeId: 'a_1' })

  it('keeps the latest', async () => {
    const s = storage()
    const location = place()
    expect(await s.loadSnapshot({ location })).toBeNull()
    const odd = state('<b>&amp; \u2028 \ud83d\ude00 "\\u003c"')
    await s.saveSnapshot({ location, snapshotId: 'latest', isLatest: true, snapshot: state('before') })
    await s.saveSnapshot({ location, snapshotId: 'latest', isLatest: true, snapshot: odd })
    expect(await s.loadSnapshot({ location })).toEqual(odd)
    expect(await s.listSnapshotIds({ location })).toEqual([])
  })

  it('keeps immutable ones, and pages through them', async () => {
    const s = storage()
    const location = place()
    const ids: string[] = []
    for (let i = 0; i < 5; i++) {
      ids.push(uuidV7())
      await s.saveSnapshot({ location, snapshotId: ids[i]!, isLatest: false, snapshot: state(String(i)) })
    }
    expect((await s.loadSnapshot({ location, snapshotId: ids[3]! }))?.data).toEqual({ text: '3' })
    expect(await s.loadSnapshot({ location, snapshotId: uuidV7() })).toBeNull()
    expect(await s.listSnapshotIds({ location })).toEqual(ids)
    expect(await s.listSnapshotIds({ location, limit: 2 })).toEqual(ids.slice(0, 2))
    expect(await s.listSnapshotIds({ location, limit: 2, startAfter: ids[1]!.toUpperCase() })).toEqual(ids.slice(2, 4))
    expect(await s.listSnapshotIds({ location, startAfter: ids[4]! })).toEqual([])
    for (const limit of [0, -1]) expect(await s.listSnapshotIds({ location, limit })).toEqual([])
    await expect(
      s.saveSnapshot({ location, snapshotId: ids[0]!, isLatest: false, snapshot: state('other') })
    ).rejects.toThrow(ConflictError)
  })

  it('has a manifest', async () => {
    const s = storage()
    const location = place()
    const none = await s.loadManifest({ location })
    expect(none.schemaVersion).toBe('1.0')
    expect(Date.parse(none.updatedAt)).toBeGreaterThan(0)
    const manifest = { schemaVersion: '1.0', updatedAt: '2026-01-02T03:04:05.678Z' }
    await s.saveManifest({ location, manifest })
    expect(await s.loadManifest({ location })).toEqual(manifest)
  })

  it('deletes a session, and no other', async () => {
    const s = storage()
    const location = place()
    const other = { ...location, sessionId: `${location.sessionId}-2` }
    for (const at of [location, other]) {
      await s.saveSnapshot({ location: at, snapshotId: 'latest', isLatest: true, snapshot: state('x') })
      await s.saveSnapshot({ location: at, snapshotId: uuidV7(), isLatest: false, snapshot: state('y') })
    }
    await s.deleteSession({ sessionId: location.sessionId })
    await s.deleteSession({ sessionId: location.sessionId })
    expect(await s.loadSnapshot({ location })).toBeNull()
    expect(await s.listSnapshotIds({ location })).toEqual([])
    expect(await s.listSnapshotIds({ location: other })).toHaveLength(1)
  })

  it('refuses what is malformed', async () => {
    const s = storage()
    const location = place()
    for (const sessionId of ['', '../x', 'A', 'a b', 'x'.repeat(10000)]) {
      await expect(s.loadSnapshot({ location: { ...location, sessionId } })).rejects.toThrow(InvalidError)
      await expect(s.deleteSession({ sessionId })).rejects.toThrow(InvalidError)
    }
    await expect(s.loadSnapshot({ location: { ...location, scopeId: 'a/b' } })).rejects.toThrow(InvalidError)
    await expect(s.loadSnapshot({ location, snapshotId: 'latest' })).rejects.toThrow(InvalidError)
    await expect(s.listSnapshotIds({ location, startAfter: 'x' })).rejects.toThrow(InvalidError)
    expect(await s.loadSnapshot({ location })).toBeNull()
  })

  it('takes a large document', async () => {
    const s = storage()
    const location = place()
    const large = state('0123456789'.repeat(1 << 20))
    await s.saveSnapshot({ location, snapshotId: 'latest', isLatest: true, snapshot: large })
    expect(await s.loadSnapshot({ location })).toEqual(large)
  })
})

describe('access', () => {
  const location = { sessionId: fresh('mine'), scope: 'agent' as const, scopeId: 'a' }
  const as = (token: string) => new SnapfsSnapshotStorage({ url: inject('url'), token })
  const save = (s: SnapfsSnapshotStorage) =>
    s.saveSnapshot({ location, snapshotId: 'latest', isLatest: true, snapshot: state('mine') })

  it('is the session of the token', async () => {
    const { own, other, reader } = inject('tokens')
    await save(as(own))
    expect(await as(other).loadSnapshot({ location })).toBeNull()
    expect((await as(reader).loadSnapshot({ location }))?.data).toEqual({ text: 'mine' })
    await expect(save(as(reader))).rejects.toThrow(RefusedError)
    const foreign = new SnapfsSnapshotStorage({ url: inject('url'), token: other, owner: 'own' })
    await expect(foreign.loadSnapshot({ location })).rejects.toThrow(NotFoundError)
    await expect(as('snapfs_wrong').loadSnapshot({ location })).rejects.toThrow(/token/)
  })

  it('refuses what is too large', async () => {
    const large = state('x'.repeat(64 << 20))
    const s = new SnapfsSnapshotStorage({ url: inject('url'), token: inject('tokens').own })
    const there = { ...location, sessionId: fresh('large') }
    const saved = s.saveSnapshot({ location: there, snapshotId: 'latest', isLatest: true, snapshot: large })
    await expect(saved).rejects.toThrow(InvalidError)
    expect(await s.loadSnapshot({ location: there })).toBeNull()
  })

  it('says what is missing', async () => {
    const nobody = new SnapfsSnapshotStorage({ socket: '/nonexistent/daemon.sock' })
    await expect(nobody.loadSnapshot({ location })).rejects.toThrow(UnavailableError)
    expect(() => new Client({ url: inject('url') })).toThrow(/token/)
  })
})
