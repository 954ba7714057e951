export { type CallOptions, Client, type ClientOptions } from './client.js'
export {
  ConflictError,
  CorruptError,
  InvalidError,
  NotFoundError,
  RefusedError,
  SnapfsError,
  UnavailableError,
} from './errors.js'
export { parseRef, providerId, type SnapshotRef } from './ref.js'
export {
  type DeriveOptions,
  type ListOptions,
  type SnapshotInfo,
  type SnapshotOptions,
  Snapshotter,
  type SnapshotterOptions,
  type WorkspaceInfo,
} from './snapshotter.js'
export { SnapfsSnapshotStorage, type StateSnapshot, type StorageOptions, type TiedDocument } from './storage.js'
