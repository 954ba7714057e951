import { request as httpRequest } from 'node:http'

/** One request to the daemon. */
export interface Request {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE'
  /** Path and query. */
  path: string
  body?: string
  headers?: Record<string, string>
  signal?: AbortSignal
}

/** Its answer. */
export interface Response {
  status: number
  header(name: string): string | undefined
  text: string
}

/** A way to the daemon. It fails with the reason of the signal if that ends a request, and else with what went wrong. */
export type Transport = (request: Request) => Promise<Response>

/** Asks over HTTP, with a token. */
export function httpTransport(url: string, token: string, fetcher: typeof fetch = fetch): Transport {
  const base = url.replace(/\/+$/, '')
  return async ({ method, path, body, headers, signal }) => {
    const response = await fetcher(base + path, {
      method,
      headers: { ...headers, authorization: `Bearer ${token}` },
      redirect: 'error',
      ...(body !== undefined && { body }),
      ...(signal && { signal }),
    })
    const text = await response.text()
    return { status: response.status, header: (name) => response.headers.get(name) ?? undefined, text }
  }
}

/** Asks over the unix socket of a home, which knows by the user who asks. */
export function socketTransport(socketPath: string): Transport {
  return ({ method, path, body, headers, signal }) =>
    new Promise((resolve, reject) => {
      const fail = (cause: unknown) => reject(signal?.aborted ? signal.reason : cause)
      const sent = httpRequest(
        {
          socketPath,
          method,
          path,
          headers: {
            ...headers,
            host: 'snapfs',
            ...(body !== undefined && { 'content-length': String(Buffer.byteLength(body)) }),
          },
          ...(signal && { signal }),
        },
        (answer) => {
          const pieces: Buffer[] = []
          answer.on('data', (piece: Buffer) => pieces.push(piece))
          answer.on('error', fail)
          answer.on('end', () => {
            resolve({
              status: answer.statusCode ?? 0,
              header: (name) => {
                const value = answer.headers[name.toLowerCase()]
                return Array.isArray(value) ? value[0] : value
              },
              text: Buffer.concat(pieces).toString('utf8'),
            })
          })
        }
      )
      sent.on('error', fail)
      sent.end(body)
    })
}
