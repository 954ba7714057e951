import { join } from 'node:path'

import { describe, expect, inject, it } from 'vitest'

import { InvalidError, NotFoundError, parseRef, RefusedError, Snapshotter } from '../src/index.js'
import { fresh, local, ways } from './connect.js'

async function workspaces(): Promise<string[]> {
  const page = await local().call<{ workspaces: { id: string }[] }>('workspaces', { limit: 100 })
  return page.workspaces.map((w) => w.id)
}

describe.each(ways)('snapshotter over $way', ({ options }) => {
  const make = async () => {
    const workspace = fresh('w')
    await local().call('create', { name: workspace })
    return new Snapshotter({ ...options(), workspace })
  }

  it('goes through the life of snapshots', async () => {
    const s = await make()
    const first = await s.snapshot({ name: 'first', description: 'of a test' })
    const second = await s.snapshot({ ttlSeconds: 3600 })
    const all = await s.list()
    expect(all.map((i) => i.ref)).toEqual([first, second])
    expect(all[0]).toMatchObject({ name: 'first', description: 'of a test', workspace: s.workspace, session: 'own' })
    expect(all[1]!.expiresAt!.getTime()).toBeGreaterThan(Date.now() + 3_000_000)
    expect(await s.list({ limit: 1 })).toHaveLength(1)
    expect((await s.list({ after: first })).map((i) => i.ref)).toEqual([second])
    expect(await s.list({ limit: 0 })).toEqual([])

    const restored = await s.restore(JSON.stringify(first))
    expect(restored.id).toMatch(new RegExp(`^${s.workspace}-restored-[0-9a-f]{4,}$`))
    const branch = await s.branch({ ...first, ref: { ...first.ref, other: { kept: 1 } } })
    expect(branch.id).toMatch(new RegExp(`^${s.workspace}-branch-[0-9a-f]{4,}$`))
    const again = await new Snapshotter({ ...options(), workspace: restored.id }).snapshot()
    expect((await s.restore(again)).id).toMatch(new RegExp(`^${s.workspace}-restored-[0-9a-f]{4,}$`))

    await s.delete(first)
    await s.delete(first)
    expect(await s.show(first)).toBeUndefined()
    await expect(s.restore(first)).rejects.toThrow(NotFoundError)
    expect(await workspaces()).toContain(restored.id)
  })

  it('starts nothing that is aborted already', async () => {
    const s = await make()
    const ref = await s.snapshot()
    const before = await workspaces()
    const signal = AbortSignal.abort(new Error('enough'))
    for (const call of [
      () => s.snapshot({ signal }),
      () => s.restore(ref, { signal }),
      () => s.branch(ref, { signal }),
      () => s.list({ signal }),
      () => s.delete(ref, { signal }),
    ]) {
      await expect(call()).rejects.toThrow('enough')
    }
    expect(await s.list()).toHaveLength(1)
    expect(await workspaces()).toEqual(before)
  })

  it('undoes what is aborted midway', async () => {
    const s = await make()
    const ref = await s.snapshot()
    let made = 0
    for (let i = 0; i < 12; i++) {
      const before = await workspaces()
      const abort = new AbortController()
      const call = s.restore(ref, { signal: abort.signal })
      setTimeout(() => abort.abort(new Error('enough')), i)
      const done = await call.then(
        (w) => w.id,
        (error: Error) => {
          expect(error.message).toBe('enough')
          return undefined
        }
      )
      if (done !== undefined) made++
      expect(await workspaces()).toHaveLength(before.length + (done === undefined ? 0 : 1))
      const snapshots = (await s.list()).length
      const other = new AbortController()
      const frozen = s.snapshot({ signal: other.signal })
      setTimeout(() => other.abort(new Error('enough')), i)
      const taken = await frozen.then(
        () => 1,
        () => 0
      )
      expect(await s.list()).toHaveLength(snapshots + taken)
    }
    expect(made).toBeLessThanOrEqual(12)
  })

  it('refuses refs that were tampered with', async () => {
    const s = await make()
    const ref = await s.snapshot()
    for (const bad of [
      '',
      'latest',
      '{}',
      JSON.stringify({ ...ref, extra: 1 }),
      JSON.stringify({ ...ref, providerId: 'other' }),
      JSON.stringify({ ...ref, ref: { ...ref.ref, snapshot: '../x' } }),
      JSON.stringify({ ...ref, ref: { ...ref.ref, workspace: 'A/../b' } }),
      JSON.stringify({ ...ref, ref: { ...ref.ref, long: 'x'.repeat(5000) } }),
      JSON.stringify({ ...ref, ref: [] }),
    ]) {
      await expect(s.restore(bad)).rejects.toThrow(InvalidError)
      await expect(s.delete(bad)).rejects.toThrow(InvalidError)
    }
    // A workspace that the snapshot was not taken of.
    await expect(s.restore({ ...ref, ref: { ...ref.ref, workspace: 'elsewhere' } })).rejects.toThrow()
    expect(parseRef(JSON.stringify(ref))).toEqual(ref)
  })
})

describe("another session's", () => {
  it('is refused, unless the call says otherwise', async () => {
    const workspace = fresh('w')
    await local().call('create', { name: workspace })
    const ref = await new Snapshotter({ client: local(), workspace }).snapshot()
    const s = new Snapshotter({ client: local('other'), workspace })
    for (const call of [() => s.restore(ref), () => s.branch(ref), () => s.delete(ref), () => s.snapshot()]) {
      await expect(call()).rejects.toThrow(RefusedError)
    }
    const restored = await s.restore(ref, { allowCrossSession: true })
    expect(restored.session).toBe('other')
    const remote = new Snapshotter({ url: inject('url'), token: inject('tokens').other, workspace })
    await expect(remote.restore(ref)).rejects.toThrow(NotFoundError) // it does not learn that there is one
    await expect(remote.restore(ref, { allowCrossSession: true })).rejects.toThrow(RefusedError)
    await expect(remote.restore(ref, { mountpoint: join(inject('home'), 'x') })).rejects.toThrow()
  })
})
