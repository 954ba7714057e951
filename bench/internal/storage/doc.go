// Package storage is the suite of that name: it stores the histories of corpora, restores and verifies every state, and
// deletes the older ones. Counted are bytes on disk and time.
package storage
