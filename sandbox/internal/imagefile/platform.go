package imagefile

import (
	"fmt"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"snapfs/sandbox/api"
)

// platform is the operating system and processor that an image is for.
type platform struct{ os, arch, variant string }

func (p platform) String() string {
	s := p.os + "/" + p.arch
	if p.variant != "" {
		s += "/" + p.variant
	}
	return s
}

// ValidPlatform is an error of class api.ErrInvalid for what is no platform.
func ValidPlatform(text string) error {
	_, err := parsePlatform(text)
	return err
}

// parsePlatform reads OS/ARCHITECTURE[/VARIANT]; "" is this machine.
func parsePlatform(text string) (platform, error) {
	if text == "" {
		return platform{os: "linux", arch: runtime.GOARCH}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || len(text) > 100 {
		return platform{}, fmt.Errorf("%w: platform %s: it is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT", api.ErrInvalid,
			api.Quoted(text))
	}
	p := platform{os: parts[0], arch: parts[1]}
	if len(parts) == 3 {
		p.variant = parts[2]
	}
	for _, part := range parts {
		if part == "" {
			return platform{}, fmt.Errorf("%w: platform %s: a part of it is empty", api.ErrInvalid, api.Quoted(text))
		}
	}
	return p, nil
}

func platformOf(p *v1.Platform) platform { return platform{p.OS, p.Architecture, p.Variant} }

// matches reports whether an image for another platform is what is wanted. The first variant of arm64 is the only one.
func (p platform) matches(of platform) bool {
	v8 := func(v string) bool { return p.arch == "arm64" && (v == "" || v == "v8") }
	return p.os == of.os && p.arch == of.arch && (p.variant == "" || p.variant == of.variant || v8(p.variant) && v8(of.variant))
}
