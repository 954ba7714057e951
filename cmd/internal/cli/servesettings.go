package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"snapfs/sandbox/api"
)

// systemSettings is the file of settings of daemons whose homes have none.
const systemSettings = "/etc/snapfs/daemon.toml"

// atOnce are the options of serve that apply at once when the settings are read again. Variables set them, too.
var atOnce = []string{
	"max-snapshots", "max-workspaces", "max-bytes", "max-size", "events-keep", "events-age", "token-rate", "token-burst", "token-calls", "max-upload",
}

// inEnvironment are the options of serve that variables set.
var inEnvironment = append([]string{"keep-mounts", "listen", "tls-cert", "tls-key", "insecure", "allow-host", "docker-plugin"}, atOnce...)

// settings are where the options of a daemon come from. The command line counts before the environment, and that before
// the file.
type settings struct {
	home string
	file string                                    // "" = the first of the usual ones that exists
	read func(path string) (map[string]any, error) // nil = no file is read
	line map[string]string                         // options of the command line
}

// given are the options that the command line has.
func given(flags *pflag.FlagSet) map[string]string {
	line := map[string]string{}
	flags.Visit(func(f *pflag.Flag) { line[f.Name] = f.Value.String() })
	return line
}

// apply sets what the command line leaves open, and checks the result.
func (s *settings) apply(flags *pflag.FlagSet, o *ServeOptions) error {
	if err := s.fromFile(flags); err != nil {
		return err
	}
	if err := fromEnvironment(flags, inEnvironment...); err != nil {
		return err
	}
	return checkTransport(o.Transport)
}

// again reads the settings anew.
func (s *settings) again() (*ServeOptions, error) {
	o := &ServeOptions{}
	flags := serveFlags(o)
	for _, name := range atOnce { // no other takes effect before the next start
		if value, ok := s.line[name]; ok {
			if err := flags.Set(name, value); err != nil {
				return nil, err
			}
		}
	}
	return o, s.apply(flags, o)
}

// fromFile sets options that the command line does not have from the file of settings.
func (s *settings) fromFile(flags *pflag.FlagSet) error {
	path := s.path()
	if path == "" || s.read == nil {
		return nil
	}
	values, err := s.read(path)
	if err != nil {
		return usagef("settings %s: %w", path, err)
	}
	known := serveFlags(&ServeOptions{})
	for name, value := range values {
		if known.Lookup(name) == nil {
			return usagef("settings %s: unknown setting %q: see 'snapfs serve --help' for the names", path, name)
		}
		if flags.Changed(name) {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, v := range list {
			if err := flags.Lookup(name).Value.Set(fmt.Sprint(v)); err != nil {
				return usagef("settings %s: %s = %v: %w", path, name, v, err)
			}
		}
	}
	return nil
}

// path is the file of settings, "" for none.
func (s *settings) path() string {
	if s.file != "" {
		return s.file
	}
	for _, path := range []string{filepath.Join(s.home, api.SettingsName), systemSettings} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}
