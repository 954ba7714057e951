import { InvalidError, invalid } from './errors.js'

/** Marks the refs of snapfs among those of other providers of snapshots. */
export const providerId = 'snapfs'

/**
 * Names a snapshot of a workspace for programs that keep snapshots of several providers: opaque, and stored as it is. Fields
 * of somebody else pass unharmed inside of `ref`; outside they are an error.
 */
export interface SnapshotRef {
  providerId: string
  ref: { snapshot: string; workspace: string; [other: string]: unknown }
}

const maxText = 4096
const idGrammar = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const workspaceGrammar = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** Reads a ref, or its JSON text, strictly. InvalidError if it is not one of snapfs, or of no snapshot there can be. */
export function parseRef(ref: unknown): SnapshotRef {
  let outer = ref
  if (typeof ref === 'string') {
    try {
      outer = JSON.parse(ref)
    } catch (cause) {
      throw new InvalidError('invalid', 'invalid: the ref is no JSON', { cause })
    }
  }
  if (!isObject(outer)) throw invalid('the ref is no object')
  for (const key of Object.keys(outer)) {
    if (key !== 'providerId' && key !== 'ref') throw invalid(`the ref has an unknown field ${JSON.stringify(key).slice(0, 80)}`)
  }
  const inner = outer.ref
  if (outer.providerId !== providerId) throw invalid(`the ref is not one of ${providerId}`)
  if (!isObject(inner)) throw invalid('what the ref says is no object')
  const { snapshot, workspace } = inner
  if (typeof snapshot !== 'string' || !idGrammar.test(snapshot)) throw invalid('the snapshot of the ref is no id')
  if (typeof workspace !== 'string' || !workspaceGrammar.test(workspace)) {
    throw invalid('the workspace of the ref has no name that there can be')
  }
  const parsed = { providerId, ref: { ...inner, snapshot, workspace } }
  if (Buffer.byteLength(JSON.stringify(parsed)) > maxText) throw invalid(`the ref is longer than ${maxText} bytes`)
  return parsed
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
