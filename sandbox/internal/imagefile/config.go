package imagefile

import (
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"snapfs/sandbox/api"
)

// Config is what is kept of an image's configuration: how its program is run, and for which platform.
type Config struct {
	Architecture string    `json:"architecture,omitempty"`
	OS           string    `json:"os,omitempty"`
	Variant      string    `json:"variant,omitempty"`
	OSVersion    string    `json:"os.version,omitempty"`
	Author       string    `json:"author,omitempty"`
	Config       v1.Config `json:"config"`
}

// maxConfig bounds what is kept of a configuration, in bytes: it stays in memory.
const maxConfig = 256 << 10

func (c *Config) platform() platform { return platform{c.OS, c.Architecture, c.Variant} }

// parse takes a configuration, and gives the diff-ids that it tells.
func (c *Config) parse(text []byte) ([]v1.Hash, error) {
	var file v1.ConfigFile
	if err := parse(text, "the configuration", &file); err != nil {
		return nil, err
	}
	if file.RootFS.Type != "" && file.RootFS.Type != "layers" {
		return nil, fmt.Errorf("%w: the image has a root file system of type %s", api.ErrInvalid, api.Quoted(file.RootFS.Type))
	}
	*c = Config{
		Architecture: file.Architecture, OS: file.OS, Variant: file.Variant, OSVersion: file.OSVersion, Author: file.Author,
		Config: file.Config,
	}
	kept, err := c.Encode()
	if err == nil && len(kept) > maxConfig {
		err = fmt.Errorf("%w: the image's configuration has %d bytes, and %d are the most", api.ErrInvalid, len(kept), maxConfig)
	}
	return file.RootFS.DiffIDs, err
}

// Encode is the configuration for a record.
func (c *Config) Encode() ([]byte, error) { return json.Marshal(c) }

// DecodeConfig is the inverse of Encode.
func DecodeConfig(text []byte) (c Config, err error) {
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%w: the record of an image's configuration: %w", api.ErrCorrupt, err)
	}
	return c, nil
}
