import { execFile, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  export interface ProvidedContext {
    home: string
    url: string
    tokens: { own: string; other: string; reader: string }
  }
}

const run = promisify(execFile)

/** Builds the command, unless SNAPFS_ENGINE names it, and serves a new home until all tests have run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dir = await mkdtemp(join(tmpdir(), 'snapfs-ts-'))
  const home = join(dir, 'home')
  let engine = process.env.SNAPFS_ENGINE
  if (engine === undefined) {
    engine = join(dir, 'snapfs-engine')
    const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..')
    await run('go', ['build', '-o', engine, './cmd/snapfs'], { cwd: root })
  }
  const daemon = spawn(engine, ['serve', '--home', home, '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'pipe'] })
  const ended = new Promise<void>((resolve) => daemon.once('exit', () => resolve()))
  const teardown = async () => {
    daemon.kill('SIGTERM')
    await ended
    await rm(dir, { recursive: true, force: true })
  }
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let log = ''
      const read = (text: Buffer) => {
        log += text.toString()
        const found = /msg="serving the network" url=(\S+)/.exec(log)
        if (found?.[1] && log.includes('msg=serving ')) resolve(found[1])
      }
      daemon.stdout.on('data', read)
      daemon.stderr.on('data', read)
      daemon.once('exit', () => reject(new Error(`the daemon has ended: ${log}`)))
    })
    const token = async (session: string, ...more: string[]) => {
      const made = await run(engine, ['token', 'create', '--home', home, '--session', session, '--json', ...more])
      return (JSON.parse(made.stdout) as { secret: string }).secret
    }
    project.provide('home', home)
    project.provide('url', url)
    project.provide('tokens', {
      own: await token('own'),
      other: await token('other'),
      reader: await token('own', '--scopes', 'read'),
    })
  } catch (error) {
    await teardown()
    throw error
  }
  return teardown
}
