import { join } from 'node:path'

import { inject } from 'vitest'

import { Client, type ClientOptions } from '../src/index.js'

/** The ways to the daemon. Over the socket the tests may ask for any session. */
export const ways: { way: string; options: () => ClientOptions }[] = [
  { way: 'HTTP', options: () => ({ url: inject('url'), token: inject('tokens').own }) },
  { way: 'socket', options: () => ({ socket: join(inject('home'), 'daemon.sock'), session: 'own' }) },
]

/** A client over the socket, for what a token cannot do. */
export function local(session = 'own'): Client {
  return new Client({ socket: join(inject('home'), 'daemon.sock'), session })
}

let last = 0

/** A name that no other test has. */
export function fresh(word: string): string {
  return `${word}-${process.pid}-${++last}`
}
