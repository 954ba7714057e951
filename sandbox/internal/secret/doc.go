// Package secret makes and reads the secrets of tokens, and knows nothing of where tokens are kept.
//
// # Format
//
//	snapfs_ ID _ KEY
//
// ID is the token's id, a UUID, as 32 lower-case hexadecimal digits. KEY is 32 random bytes in base64url without padding,
// 43 characters. The whole has 83 characters, of which the first seven let scanners find secrets that were published.
//
// Kept of a secret is its SHA-256: KEY has 256 bits of entropy, so that a slow hash would add nothing.
package secret
