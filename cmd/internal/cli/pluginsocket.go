package cli

import (
	"errors"
	"path/filepath"
	"strconv"
)

// Values of ServeOptions.DockerPlugin that are no paths.
const (
	PluginOn  = "true"
	PluginOff = "false"
)

var errPluginSocket = errors.New("want true, false or the absolute path of a socket")

// pluginSocket is a flag that takes where volumes are served.
type pluginSocket struct{ to *string }

// Set implements pflag.Value, as the next two do.
func (p pluginSocket) Set(s string) error {
	if filepath.IsAbs(s) {
		*p.to = filepath.Clean(s)
		return nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return errPluginSocket
	}
	*p.to = strconv.FormatBool(on)
	return nil
}

func (p pluginSocket) String() string {
	if p.to == nil {
		return ""
	}
	return *p.to
}

// Type is that of a flag which needs no value.
func (pluginSocket) Type() string { return "bool" }
