package dirapply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// Path is a path in a journal: raw bytes.
type Path string

// MarshalText spells a path in ASCII.
func (p Path) MarshalText() ([]byte, error) { return []byte(strconv.QuoteToASCII(string(p))), nil }

// UnmarshalText reads what MarshalText has written.
func (p *Path) UnmarshalText(text []byte) error {
	s, err := strconv.Unquote(string(text))
	*p = Path(s)
	return err
}

// Step is one thing that is different in the new tree.
type Step struct {
	Kind layers.Kind `json:"kind"` // Added, Deleted, Renamed or Modified
	Old  Path        `json:"old"`  // in the old tree; not of what is added
	New  Path        `json:"new"`  // in the new tree; not of what is deleted
	Was  Identity    `json:"was"`  // of what is at Old
}

// Identity tells what is at a path from what may come to be there.
type Identity struct {
	Ino, Size    uint64
	Mtime, Ctime layers.Time
	Nlink        uint32
}

func identityOf(st *stat) Identity { return Identity{st.Ino, st.Size, st.Mtime, st.Ctime, st.Nlink} }

// is reports whether a thing is still what it was. The change time of a file with several names, or in what is moved,
// changes with those.
func (i Identity) is(st *stat, exact bool) bool {
	if i.Ino != st.Ino || !isDir(st.Mode) && (i.Size != st.Size || i.Mtime != st.Mtime) {
		return false
	}
	return !exact || isDir(st.Mode) || i.Nlink > 1 || i.Ctime == st.Ctime
}

// Obstacle is something that cannot be changed.
type Obstacle struct{ Path, Why string }

// Steps makes the steps that lead from the old tree to the new one, which have to have moved things in common, and looks
// at what they are about. ErrChanged if the root is not as the old tree there.
func (r *Root) Steps(
	ctx context.Context, changes []layers.Change, old, now threeway.Tree,
) (steps []Step, obstacles []Obstacle, err error) {
	for _, c := range changes {
		path, was := Path(c.Path), Path(cmp.Or(c.OldPath, c.Path))
		switch c.Kind {
		case layers.Added:
			steps = append(steps, Step{Kind: c.Kind, New: path})
		case layers.Deleted:
			steps = append(steps, Step{Kind: c.Kind, Old: path})
		case layers.Retyped:
			steps = append(steps, Step{Kind: layers.Deleted, Old: was}, Step{Kind: layers.Added, New: path})
		case layers.Renamed, layers.Modified:
			steps = append(steps, Step{Kind: c.Kind, Old: was, New: path})
		}
	}
	if steps, err = overwritten(steps, old); err != nil {
		return nil, nil, err
	}
	l := looker{r: r, dirs: map[string]string{}}
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if err := l.look(ctx, &steps[i], old); err != nil {
			return nil, nil, err
		}
	}
	return steps, l.obstacles, nil
}

// overwritten adds the deletion of files in whose place something is moved: no change tells of it.
func overwritten(steps []Step, old threeway.Tree) ([]Step, error) {
	gone := map[Path]bool{}
	back := map[string]string{}
	added := map[string]bool{}
	for _, s := range steps {
		switch s.Kind {
		case layers.Deleted:
			gone[s.Old] = true
		case layers.Renamed:
			gone[s.Old], back[string(s.New)] = true, string(s.Old)
		case layers.Added:
			added[string(s.New)] = true
		}
	}
	for _, s := range steps {
		if s.Kind != layers.Renamed {
			continue
		}
		dir, name := threeway.Split(string(s.New))
		in, ok := mapped(dir, back, added)
		at := threeway.Join(in, name)
		if !ok || gone[Path(at)] {
			continue
		}
		f, err := old.Lstat(at)
		if err != nil {
			return nil, err
		}
		if f != nil {
			gone[Path(at)] = true
			steps = append(steps, Step{Kind: layers.Deleted, Old: Path(at)})
		}
	}
	return steps, nil
}

// mapped gives a path as it was before renames, by what is moved at or above it; false if it is in what is new.
func mapped(path string, back map[string]string, added map[string]bool) (string, bool) {
	for at := path; ; at, _ = threeway.Split(at) {
		if old, ok := back[at]; ok {
			return old + path[len(at):], true
		}
		if added[at] {
			return "", false
		}
		if at == "" {
			return path, true
		}
	}
}

// looker looks at what steps are about.
type looker struct {
	r         *Root
	dirs      map[string]string // why nothing can be changed in a directory, by path; "" if it can
	obstacles []Obstacle
}

func (l *looker) look(ctx context.Context, s *Step, old threeway.Tree) error {
	for _, path := range []Path{s.Old, s.New} {
		if path == "" {
			continue
		}
		dir, _ := threeway.Split(string(path))
		why, err := l.dir(dir)
		if err != nil {
			return err
		}
		if why != "" {
			l.obstacles = append(l.obstacles, Obstacle{string(path), why})
			return nil
		}
	}
	if s.Kind == layers.Added {
		return nil
	}
	st, err := l.r.lstat(string(s.Old))
	if err != nil {
		return described(string(s.Old), err)
	}
	f, err := old.Lstat(string(s.Old))
	if err != nil {
		return err
	}
	if st == nil || f == nil || kind(st.Mode) != kind(f.Stat().Mode) ||
		!isDir(st.Mode) && (!sameTime(f.Stat().Mtime, st.Mtime) || isReg(st.Mode) && st.Size != f.Stat().Size) {
		return fmt.Errorf("%w: %q", ErrChanged, s.Old)
	}
	if !isDir(st.Mode) && l.r.recent(st) {
		same, err := alike(ctx, f, file{l.r, string(s.Old), st}, false)
		switch {
		case errors.Is(err, unix.EACCES): // its directory lets it be moved all the same
		case err != nil:
			return err
		case !same:
			return fmt.Errorf("%w: %q", ErrChanged, s.Old)
		}
	}
	switch {
	case st.mount != l.r.mount:
		l.obstacles = append(l.obstacles, Obstacle{string(s.Old), "something is mounted there"})
	case st.fixed:
		l.obstacles = append(l.obstacles, Obstacle{string(s.Old), "it is immutable or append-only (chattr)"})
	}
	s.Was = identityOf(st)
	return nil
}

// dir says why nothing can be changed in a directory. One that is not there yet will be made.
func (l *looker) dir(path string) (why string, err error) {
	if why, ok := l.dirs[path]; ok {
		return why, nil
	}
	defer func() { l.dirs[path] = why }()
	err = l.r.do(func() error {
		fd, err := l.r.openDir(path, unix.O_PATH)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // O_PATH
		var sx unix.Statx_t
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &sx); err != nil {
			return err
		}
		if statOf(&sx).fixed {
			why = "its directory is immutable or append-only (chattr)"
			return nil
		}
		return l.writable(fd, &why)
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return "it is in what is mounted inside the directory", nil
	case missing(err):
		return "", nil
	case errors.Is(err, unix.EACCES):
		return "its directory may not be entered", nil
	}
	return why, described(path, err)
}

// writable finds out whether names in a directory can be changed, or could after a chmod, which is undone.
func (l *looker) writable(fd int, why *string) error {
	at := fdPath(fd)
	err := unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	switch {
	case errors.Is(err, unix.EROFS):
		*why = "the file system is read-only"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if unix.Chmod(at, st.Mode&0o7777) != nil { // it may if it is the owner's
			*why = "its directory may not be written"
		}
	case err != nil:
		return err
	}
	return nil
}

// moves are the steps as they lead to one of the trees, each with its number.
type moves struct {
	takes, puts, sets []move
	from              map[string]Identity // of what is deleted from where something else comes to be
	to                map[string]string   // where what is renamed goes, by where it was
	putAt             map[string]move     // puts by where they lead
}

// move is a step in one direction.
type move struct {
	n        int
	kind     layers.Kind
	src, dst string
	was      Identity
}

// direct gives steps a direction. What is in a directory is taken before it, and put after it.
func direct(steps []Step, back bool) moves {
	m := moves{from: map[string]Identity{}, to: map[string]string{}, putAt: map[string]move{}}
	came := map[Path]bool{}
	for i, s := range steps {
		v := move{n: i, kind: s.Kind, src: string(s.Old), dst: string(s.New), was: s.Was}
		if back {
			v.src, v.dst = v.dst, v.src
			switch s.Kind {
			case layers.Added:
				v.kind = layers.Deleted
			case layers.Deleted:
				v.kind = layers.Added
			}
		}
		switch v.kind {
		case layers.Added:
			m.puts = append(m.puts, v)
		case layers.Deleted:
			m.takes = append(m.takes, v)
		case layers.Renamed:
			m.takes, m.puts = append(m.takes, v), append(m.puts, v)
		case layers.Modified:
			m.sets = append(m.sets, v)
		}
		if s.Kind == layers.Added {
			came[s.New] = true
		}
	}
	for _, s := range steps {
		if s.Kind == layers.Deleted && came[s.Old] {
			m.from[string(s.Old)] = s.Was
		}
	}
	for _, v := range m.puts {
		m.putAt[v.dst] = v
		if v.kind == layers.Renamed {
			m.to[v.src] = v.dst
		}
	}
	slices.SortFunc(m.takes, func(a, b move) int { return threeway.ComparePaths(b.src, a.src) })
	slices.SortFunc(m.puts, func(a, b move) int { return threeway.ComparePaths(a.dst, b.dst) })
	slices.SortFunc(m.sets, func(a, b move) int { return threeway.ComparePaths(a.dst, b.dst) })
	return m
}

// moved gives the path to which renames bring something.
func (m *moves) moved(path string) string {
	for at := path; at != ""; at, _ = threeway.Split(at) {
		if dst, ok := m.to[at]; ok {
			return dst + strings.TrimPrefix(path, at)
		}
	}
	return path
}
