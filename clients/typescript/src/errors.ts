/** What every error of snapfs is; `errorClass` is the word for its class, as the command prints it with --json. */
export class SnapfsError extends Error {
  override readonly name: string = 'SnapfsError'
  readonly errorClass: string
  /** Whether the daemon had no room for the call, which has not begun. */
  readonly busy: boolean

  constructor(errorClass: string, message: string, options?: { cause?: unknown; busy?: boolean }) {
    super(message, options?.cause === undefined ? undefined : { cause: options.cause })
    this.errorClass = errorClass
    this.busy = options?.busy ?? false
  }
}

/** A malformed name, id, ref, option or document. */
export class InvalidError extends SnapfsError {
  override readonly name = 'InvalidError'
}

/** There is no such object. */
export class NotFoundError extends SnapfsError {
  override readonly name = 'NotFoundError'
}

/** A wrong state, a name that is taken, something in use, an immutable document with other contents. */
export class ConflictError extends SnapfsError {
  override readonly name = 'ConflictError'
}

/** It belongs to another session, or the token may not do it. */
export class RefusedError extends SnapfsError {
  override readonly name = 'RefusedError'
}

/** Damaged data. */
export class CorruptError extends SnapfsError {
  override readonly name = 'CorruptError'
}

/** No daemon answers, or it has no room. */
export class UnavailableError extends SnapfsError {
  override readonly name = 'UnavailableError'
}

type ErrorClass = new (word: string, message: string, options?: { cause?: unknown; busy?: boolean }) => SnapfsError

const classes: Record<string, ErrorClass> = {
  invalid: InvalidError,
  not_found: NotFoundError,
  conflict: ConflictError,
  refused: RefusedError,
  corrupt: CorruptError,
  unavailable: UnavailableError,
}

/** Makes the error of a class by its word. */
export function errorOf(word: string, message: string, busy = false): SnapfsError {
  return new (classes[word] ?? SnapfsError)(word, message, { busy })
}

/** Makes the error for what a caller has given wrong. */
export function invalid(message: string): InvalidError {
  return new InvalidError('invalid', `invalid: ${message}`)
}
