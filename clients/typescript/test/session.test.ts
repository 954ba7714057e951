import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Agent, SessionManager } from '@strands-agents/sdk'
import { afterEach, describe, expect, it } from 'vitest'

import { SnapfsSnapshotStorage, Snapshotter } from '../src/index.js'
import { fresh, local, ways } from './connect.js'
import { CountingModel } from './model.js'

function agentOf(sessionManager: SessionManager): Agent {
  return new Agent({ model: new CountingModel(), id: 'agent', sessionManager, printer: false })
}

describe.each(ways)("the SDK's SessionManager over $way", ({ options }) => {
  it('goes on with a conversation', async () => {
    const sessionId = fresh('chat')
    const manager = () =>
      new SessionManager({ sessionId, storage: { snapshot: new SnapfsSnapshotStorage(options()) }, snapshotTrigger: () => true })
    const first = agentOf(manager())
    first.appState.set('mood', 'good')
    await first.invoke('one')
    await first.invoke('two')
    expect(first.messages).toHaveLength(4)

    const sessions = manager()
    const second = agentOf(sessions)
    await second.invoke('three')
    expect(second.messages.map((m) => m.role).join(' ')).toBe('user assistant user assistant user assistant')
    expect(JSON.stringify(second.messages.at(-1)!.content)).toContain('I was given 5.')
    expect(second.appState.get('mood')).toBe('good')

    const ids = await sessions.listSnapshotIds({ target: second })
    expect(ids).toHaveLength(3)
    expect(await sessions.restoreSnapshot({ target: second, snapshotId: ids[0]! })).toBe(true)
    expect(second.messages).toHaveLength(2)
    await sessions.deleteSession()
    expect(await sessions.listSnapshotIds({ target: second })).toEqual([])
    expect(await sessions.restoreSnapshot({ target: second })).toBe(false)
  })
})

describe('state and files', () => {
  const clean: (() => Promise<unknown>)[] = []
  afterEach(async () => {
    for (const each of clean.splice(0).reverse()) await each()
  })

  it('come back together, and go together', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'snapfs-ts-mounts-'))
    clean.push(() => rm(dir, { recursive: true }))
    const client = local()
    const workspace = fresh('w')
    const mount = async (name: string) => {
      const at = join(dir, name)
      await client.call('mount', { workspace: name, mountpoint: at, make_mountpoint: true })
      clean.push(() => client.call('unmount', { workspace: name }))
      return at
    }
    await client.call('create', { name: workspace })
    const at = await mount(workspace)

    const storage = new SnapfsSnapshotStorage({ client, workspace })
    const sessions = new SessionManager({ sessionId: fresh('chat'), storage: { snapshot: storage }, snapshotTrigger: () => true })
    const agent = agentOf(sessions)
    for (const text of ['one', 'two']) {
      await writeFile(join(at, 'f'), text)
      await agent.invoke(text)
    }
    const location = { sessionId: sessions.sessionId, scope: 'agent' as const, scopeId: agent.id }
    const ids = await sessions.listSnapshotIds({ target: agent })
    expect(ids).toHaveLength(2)

    const restored = join(dir, 'restored')
    const back = await storage.restoreWorkspace({ location, snapshotId: ids[0]! }, { mountpoint: restored })
    clean.push(() => client.call('unmount', { workspace: back!.id }))
    expect(back!.id).toMatch(new RegExp(`^${workspace}-restored-[0-9a-f]+$`))
    await sessions.restoreSnapshot({ target: agent, snapshotId: ids[0]! })
    expect(agent.messages).toHaveLength(2)
    expect(await readFile(join(restored, 'f'), 'utf8')).toBe('one')
    expect(await readFile(join(at, 'f'), 'utf8')).toBe('two')

    const ref = (await storage.workspaceSnapshot({ location, snapshotId: ids[0]! }))!
    expect((await storage.documents(ref)).map((d) => d.snapshotId)).toEqual([ids[0]])
    expect(await storage.workspaceSnapshot({ location })).toBeUndefined()
    await new Snapshotter({ client, workspace }).delete(ref)
    expect(await storage.loadSnapshot({ location, snapshotId: ids[0]! })).toBeNull()
    expect(await sessions.listSnapshotIds({ target: agent })).toEqual([ids[1]])
    expect(await readFile(join(restored, 'f'), 'utf8')).toBe('one')
  })

  it('leaves no snapshot of files whose state was not saved', async () => {
    const client = local()
    const workspace = fresh('w')
    await client.call('create', { name: workspace })
    const storage = new SnapfsSnapshotStorage({ client, workspace })
    const location = { sessionId: fresh('chat'), scope: 'agent' as const, scopeId: 'a' }
    const snapshotId = '01a2218b-1ebb-7000-a9d8-a9aed55a33b4'
    const state = (text: string) => ({ scope: 'agent' as const, schemaVersion: '1.0', createdAt: '', data: { text }, appData: {} })
    await storage.saveSnapshot({ location, snapshotId, isLatest: false, snapshot: state('one') })
    await expect(storage.saveSnapshot({ location, snapshotId, isLatest: false, snapshot: state('two') })).rejects.toThrow(/immutable/)
    expect(await new Snapshotter({ client, workspace }).list()).toHaveLength(1)
  })
})
