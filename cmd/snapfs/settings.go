package main

import (
	"os"

	"github.com/pelletier/go-toml/v2"
)

// readSettings reads a file of settings of a daemon.
func readSettings(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, toml.Unmarshal(text, &values)
}
