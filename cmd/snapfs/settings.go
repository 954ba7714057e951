package main

import (
	"github.com/BurntSushi/toml"
)

// readSettings reads a file of settings of a daemon.
func readSettings(path string) (map[string]any, error) {
	values := map[string]any{}
	_, err := toml.DecodeFile(path, &values)
	return values, err
}
