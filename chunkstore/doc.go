// Package chunkstore keeps byte streams as deduplicated, compressed chunks in a Badger database and packs.
package chunkstore
