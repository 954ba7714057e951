import { randomUUID } from 'node:crypto'
import { join } from 'node:path'

import { errorOf, SnapfsError, UnavailableError } from './errors.js'
import { httpTransport, type Request, type Response, socketTransport, type Transport } from './transport.js'

/** Where the daemon is, and for which session to ask. */
export interface ClientOptions {
  /** Address of `snapfs serve --listen`, such as http://127.0.0.1:8080. It needs a token. */
  url?: string
  /** What `snapfs token create` printed. */
  token?: string
  /** Path of the socket of a home, in place of url and token. */
  socket?: string
  /** The session that asks; of a token it is the token's. */
  session?: string
  /** Takes the place of the global fetch. */
  fetch?: typeof fetch
}

/** What calls have in common. */
export interface CallOptions {
  /** Ends the call. One that is aborted already starts nothing; one that is aborted later undoes what it began. */
  signal?: AbortSignal
  /** Uses what belongs to another session, which is audited. */
  allowCrossSession?: boolean
}

/** For how long a daemon without room for a call is asked again, in milliseconds. */
const busyWait = 30_000
/** For how long to wait to learn what became of an aborted call, in milliseconds. */
const outcomeWait = 10_000

/** A line of the answer to a native call. */
interface Line {
  result?: unknown
  error?: { class: string; message: string; busy?: boolean }
}

/** A connection to the daemon of a home. It keeps nothing open that has to be closed. */
export class Client {
  readonly session: string | undefined
  private readonly transport: Transport

  /** Without options: what SNAPFS_URL and SNAPFS_TOKEN say, else the socket of the home that SNAPFS_HOME names. */
  constructor(options: ClientOptions = {}) {
    const env = process.env
    this.session = options.session ?? env.SNAPFS_SESSION
    const url = options.url ?? (options.socket === undefined ? env.SNAPFS_URL : undefined)
    if (url !== undefined) {
      const token = options.token ?? env.SNAPFS_TOKEN
      if (token === undefined) {
        throw new UnavailableError('unavailable', `unavailable: ${url} needs a token: 'snapfs token create' makes one`)
      }
      this.transport = httpTransport(url, token, options.fetch)
      return
    }
    this.transport = socketTransport(options.socket ?? join(home(), 'daemon.sock'))
  }

  /** Makes a request. A daemon without room is asked again for a while, until the other signal ends that. */
  async request(request: Request, again?: AbortSignal): Promise<Response> {
    const signals = [request.signal, again].filter((s) => s !== undefined)
    for (let wait = 20, left = busyWait; ; left -= wait, wait = Math.min(2 * wait, 1000)) {
      for (const signal of signals) signal.throwIfAborted()
      let response: Response
      try {
        response = await this.transport(request)
      } catch (cause) {
        request.signal?.throwIfAborted() // also with what was given up for
        throw new UnavailableError('unavailable', `unavailable: no daemon answers: ${reason(cause)}`, { cause })
      }
      const busy = response.status === 429 || errorIn(response)?.busy === true
      if (!busy || left <= 0) return response
      await pause(wait, AbortSignal.any(signals))
    }
  }

  /**
   * Makes a native call that changes nothing, or something that need not be undone.
   */
  async call<T>(name: string, body: object, options: CallOptions = {}): Promise<T> {
    return resultOf<T>(await this.request(this.native(name, body, options)))
  }

  /**
   * Makes a native call that changes something. If it is aborted and the daemon has done it all the same, undo is called with
   * the result, and the call fails with the signal's reason; without undo it has succeeded.
   */
  async changing<T>(name: string, body: object, options: CallOptions, undo?: (made: T) => Promise<void>): Promise<T> {
    const { signal } = options
    signal?.throwIfAborted()
    const id = randomUUID()
    const { signal: _, ...request } = this.native(name, body, options)
    // The request outlives the signal: its own answer says what became of it.
    const over = new AbortController()
    const headers = { ...request.headers, 'snapfs-call': id }
    const answer = this.request({ ...request, headers, signal: over.signal }, signal)
    let asked: Promise<void> | undefined
    const abort = () => (asked ??= this.cancel(id, over))
    signal?.addEventListener('abort', abort, { once: true })
    let made: T
    try {
      made = resultOf<T>(await answer)
    } catch (error) {
      if (signal?.aborted && error instanceof SnapfsError && error.errorClass === 'canceled') throw signal.reason
      throw error
    } finally {
      signal?.removeEventListener('abort', abort)
      over.abort()
      await asked
    }
    if (signal?.aborted && undo !== undefined) {
      await undo(made)
      throw signal.reason
    }
    return made
  }

  /** Asks the daemon to cancel a call, and gives the call up if its answer does not come. */
  private async cancel(id: string, call: AbortController): Promise<void> {
    const late = AbortSignal.any([call.signal, AbortSignal.timeout(outcomeWait)])
    try {
      // It may be there before the call is.
      for (let found = false; !found; ) {
        found = (await this.call<{ found: boolean }>('cancel', { call: id }, { signal: late })).found
        if (!found) await pause(20, late)
      }
      await ends(late)
    } catch {
      // The call has ended, or nobody tells: either way there is nothing more to wait for.
    }
    call.abort(new UnavailableError('unavailable', 'unavailable: the daemon does not tell what became of the aborted call'))
  }

  private native(name: string, body: object, options: CallOptions): Request {
    const access = {
      ...(this.session !== undefined && { session: this.session }),
      ...(options.allowCrossSession && { allow_cross_session: true }),
    }
    return {
      method: 'POST',
      path: `/v1/${name}`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(name === 'cancel' ? body : { ...access, ...body }),
      ...(options.signal && { signal: options.signal }),
    }
  }
}

function home(): string {
  const env = process.env
  if (env.SNAPFS_HOME) return env.SNAPFS_HOME
  if (process.getuid?.() === 0) return '/var/lib/snapfs'
  return join(env.XDG_DATA_HOME || join(env.HOME ?? '/', '.local/share'), 'snapfs')
}

/** Gives the last line of an answer. */
function lastLine(response: Response): Line | undefined {
  const text = response.text.trimEnd()
  const last = text.slice(text.lastIndexOf('\n') + 1)
  try {
    const line: unknown = JSON.parse(last)
    return typeof line === 'object' && line !== null ? line : undefined
  } catch {
    return undefined
  }
}

function errorIn(response: Response): Line['error'] {
  return response.status === 200 && response.header('content-type') === 'application/json'
    ? undefined // the body is a document
    : lastLine(response)?.error
}

/** Gives the error of an answer, undefined if it is none. */
export function failure(response: Response): SnapfsError | undefined {
  const error = errorIn(response)
  if (error) return errorOf(error.class, error.message, error.busy)
  if (response.status >= 200 && response.status < 300) return undefined
  return errorOf('failed', `the answer has status ${response.status}: ${response.text.slice(0, 200)}`)
}

function resultOf<T>(response: Response): T {
  const error = failure(response)
  if (error) throw error
  const line = lastLine(response)
  if (line?.result === undefined) {
    throw new UnavailableError('unavailable', 'unavailable: the answer was cut off')
  }
  return line.result as T
}

function reason(cause: unknown): string {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause
  return inner instanceof Error ? inner.message : String(inner)
}

/** Waits for a time, and fails if the signal ends that. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer)
      reject(signal.reason)
    }
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', abort)
      resolve()
    }, ms)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
  })
}

/** Waits until a signal is aborted. */
function ends(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
