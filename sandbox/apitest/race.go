//go:build race

package apitest

func init() { raceEnabled = true }
