package dockerplugin

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/dustin/go-humanize"

	"snapfs/sandbox/api"
)

// Bounds of what engines name.
const (
	maxName   = 200 // bytes of a volume's name
	maxUseID  = 256 // bytes of the id of a use
	maxOption = 4096
)

// volumeGrammar is that of Docker and Podman. It is also safe as the name of a file.
var volumeGrammar = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`) })

func validName(name string) error {
	if len(name) > maxName || !volumeGrammar().MatchString(name) {
		return fmt.Errorf("%w: volume name %s: 1 to %d letters, digits and _ . -, a letter or digit first",
			api.ErrInvalid, api.Quoted(name), maxName)
	}
	return nil
}

func validUse(id string) error {
	if id == "" {
		return fmt.Errorf("%w: the request has no ID, by which uses of a volume are counted", api.ErrInvalid)
	}
	if len(id) > maxUseID || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: ID %s: up to %d printable characters", api.ErrInvalid, api.Quoted(id), maxUseID)
	}
	return nil
}

// options are what a volume is made with.
type options struct {
	from, platform, workspace, session string
	quota                              api.Quota
	mount                              api.MountOptions
}

// setters set one option each, by its name.
func (o *options) setters() map[string]func(value string) error {
	text := func(to *string) func(string) error {
		return func(value string) error {
			if value == "" {
				return fmt.Errorf("%w: it is empty", api.ErrInvalid)
			}
			*to = value
			return nil
		}
	}
	number := func(to *int64, example string) func(string) error {
		return func(value string) error {
			n, err := humanize.ParseBytes(value)
			if err != nil || n > math.MaxInt64 {
				return fmt.Errorf("%w: want a number such as %s", api.ErrInvalid, example)
			}
			*to = int64(n)
			return nil
		}
	}
	yes := func(to *bool) func(string) error {
		return func(value string) (err error) {
			if value == "" {
				value = "true"
			}
			if *to, err = strconv.ParseBool(value); err != nil {
				return fmt.Errorf("%w: want true or false", api.ErrInvalid)
			}
			return nil
		}
	}
	return map[string]func(string) error{
		"from": text(&o.from), "platform": text(&o.platform),
		"workspace": text(&o.workspace), "session": text(&o.session),
		"size": number(&o.quota.Size, "10G"), "inodes": number(&o.quota.Inodes, "1M"),
		"suid": yes(&o.mount.SUID), "dev": yes(&o.mount.Dev), "noexec": yes(&o.mount.NoExec),
		"allow_other": yes(&o.mount.AllowOther),
		"engine": func(value string) error {
			switch value {
			case api.EngineFUSE, api.EngineKernel, api.EngineAuto:
				o.mount.Engine = value
				return nil
			}
			return fmt.Errorf("%w: the engine of a volume is %s, %s or %s", api.ErrInvalid, api.EngineFUSE,
				api.EngineKernel, api.EngineAuto)
		},
	}
}

// parseOptions reads the options of a volume. allowOther is for one whose options do not say.
func parseOptions(given map[string]string, allowOther bool) (*options, error) {
	o := &options{mount: api.MountOptions{AllowOther: allowOther}}
	setters := o.setters()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		set := setters[name]
		if set == nil {
			return nil, fmt.Errorf("%w: unknown option %s: there are %s", api.ErrInvalid, api.Quoted(name),
				strings.Join(slices.Sorted(maps.Keys(setters)), ", "))
		}
		if len(value) > maxOption || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("%w: option %s: %s is too long, or not printable",
				api.ErrInvalid, name, api.Quoted(value))
		}
		if err := set(value); err != nil {
			return nil, fmt.Errorf("option %s=%s: %w", name, api.Quoted(value), err)
		}
	}
	o.mount.NoSUID, o.mount.NoDev = !o.mount.SUID, !o.mount.Dev
	if o.mount.Engine == api.EngineKernel && !o.quota.None() {
		return nil, fmt.Errorf("%w: a volume with engine=%s has no limits: leave size and inodes out, or the engine",
			api.ErrInvalid, api.EngineKernel)
	}
	if _, err := (api.Access{Session: o.session}).SessionID(); err != nil {
		return nil, err
	}
	if o.workspace == "" {
		return o, nil
	}
	for _, name := range []string{"from", "platform", "size", "inodes"} {
		if _, ok := given[name]; ok {
			return nil, fmt.Errorf("%w: option %s is for a workspace that is made, and option workspace names one that is "+
				"there", api.ErrInvalid, name)
		}
	}
	return o, api.ValidWorkspaceName(o.workspace)
}

// workspaceName is the name of the workspace that is made for a volume: that of the volume, or what is like it and a
// workspace's name, with a part of a hash of it.
func workspaceName(volume string) string {
	if api.ValidWorkspaceName(volume) == nil {
		return volume
	}
	const most = 63 - 9
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(volume))
	base = strings.Trim(base[:min(len(base), most)], "-")
	return fmt.Sprintf("%s-%x", base, sha256.Sum256([]byte(volume)))[:len(base)+9]
}
