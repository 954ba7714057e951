//go:build race

package chunkstore

func init() { raceEnabled = true }
