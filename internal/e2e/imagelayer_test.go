package e2e

import (
	"archive/tar"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
)

// layerMaker makes layers at random that change a base in all the ways in which layers can. They list each directory that
// they have something in, for engines do not keep what others are like.
type layerMaker struct {
	rng  *rand.Rand
	base []treewalk.Node

	// taken are the directories of the base that layers of one image have changed. A layer does not take away what one below
	// has taken away: overlays of the kernel list such names, and have no files of them.
	taken    []string
	layer    []entry
	listed   map[string]bool
	contents map[string]bool // of all files so far
	made     int             // names of its own
}

// file is a regular file with attributes at random.
func (m *layerMaker) file(path, data string) entry {
	m.contents[data] = true
	return m.owned(file(path, data).with(func(h *tar.Header) { h.Mode = int64(m.rng.IntN(0o10000)) }))
}

// owned gives an entry an owner and a time.
func (m *layerMaker) owned(e entry) entry {
	return e.with(func(h *tar.Header) {
		h.Uid, h.Gid = m.rng.IntN(3)*500, m.rng.IntN(3)*70000
		h.ModTime = time.Unix(m.rng.Int64N(1<<31), m.rng.Int64N(1e9))
	})
}

// add puts an entry in the layer, after the directories that lead there.
func (m *layerMaker) add(e entry) {
	m.dirs(filepath.Dir(strings.TrimSuffix(e.Name, "/")))
	m.layer = append(m.layer, e)
}

func (m *layerMaker) dirs(path string) {
	if path == "." || m.listed[path] {
		return
	}
	m.dirs(filepath.Dir(path))
	m.listed[path] = true
	m.layer = append(m.layer, m.owned(directory(path).with(func(h *tar.Header) { h.Mode = int64(0o700 | m.rng.IntN(0o10000)) })))
}

// text is a content that no other file has, or, now and then, one that many have.
func (m *layerMaker) text() string {
	if m.rng.IntN(4) == 0 {
		return strings.Repeat("common\n", 1+m.rng.IntN(3))
	}
	return strings.Repeat(fmt.Sprintf("%x ", m.rng.Uint64()), 1+m.rng.IntN(200))
}

// name is one that nothing has yet: a plain one, a long one, or one of odd bytes.
func (m *layerMaker) name() string {
	m.made++
	name := fmt.Sprintf("n%d", m.made)
	switch m.rng.IntN(4) {
	case 0:
		name += strings.Repeat("long", 1+m.rng.IntN(60))
	case 1:
		for range 1 + m.rng.IntN(30) {
			if b := byte(1 + m.rng.IntN(255)); b != '/' {
				name += string([]byte{b})
			}
		}
	}
	return name
}

// next makes a layer of an image, of which first is the first. Each change of the base is in a directory of its own.
func (m *layerMaker) next(first bool) []entry {
	m.layer, m.listed = nil, map[string]bool{}
	if first {
		m.taken = nil
	}
	free := func(path string) bool {
		return !slices.ContainsFunc(m.taken, func(t string) bool {
			return path == t || strings.HasPrefix(path, t+"/") || strings.HasPrefix(t, path+"/")
		})
	}
	for _, i := range m.rng.Perm(len(m.base))[:min(len(m.base), 40)] {
		n := m.base[i]
		isDir := n.Mode&unix.S_IFMT == unix.S_IFDIR
		place := filepath.Dir(n.Path)
		if isDir {
			place = n.Path
		}
		if strings.Count(place, "/") < 2 || !free(place) {
			continue
		}
		m.taken = append(m.taken, place)
		whiteout := filepath.Join(filepath.Dir(n.Path), ".wh."+filepath.Base(n.Path))
		switch m.rng.IntN(4) {
		case 0:
			m.add(file(whiteout, ""))
		case 1: // another kind of file
			if isDir {
				m.add(m.file(n.Path, m.text()))
			} else {
				m.add(m.file(n.Path+"/"+m.name(), m.text()))
			}
		case 2:
			m.add(file(place+"/.wh..wh..opq", ""))
			m.add(m.file(place+"/"+m.name(), m.text()))
		default:
			if !isDir {
				m.add(m.file(n.Path, m.text()))
			}
		}
	}
	m.additions("new/" + m.name())
	return m.layer
}

// additions is what the base has nothing to do with.
func (m *layerMaker) additions(dir string) {
	one := m.file(dir+"/"+m.name(), m.text())
	m.add(one)
	m.add(hardLink(dir+"/"+m.name()+"/"+m.name(), one.Name).with(func(h *tar.Header) {
		h.Mode, h.Uid, h.Gid, h.ModTime = one.Mode, one.Uid, one.Gid, one.ModTime // as archivers write it
	}))
	m.add(m.owned(symbolicLink(dir+"/"+m.name(), m.name())))
	m.add(m.file(dir+"/"+m.name(), strings.Repeat("\x00", m.rng.IntN(3)<<16)+m.text()+strings.Repeat("\x00", m.rng.IntN(2)<<16)))
	m.add(m.file(dir+"/"+m.name(), ""))
	m.add(m.file(dir+"/"+m.name(), m.text()).with(func(h *tar.Header) {
		h.PAXRecords = map[string]string{
			"SCHILY.xattr.security.capability":                 "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			"SCHILY.xattr.user." + fmt.Sprint(m.rng.IntN(100)): m.text(),
		}
	}))
	m.add(m.owned(entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: dir + "/" + m.name(), Mode: 0o600}}))
	m.add(m.owned(entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: dir + "/" + m.name(), Mode: 0o640, Devmajor: 1, Devminor: 3}}))
}
