package hooks

import (
	"context"
	"path/filepath"
	"strings"
)

// excludeMark is before a line of ours in the exclude file of a repository.
const excludeMark = "# made by 'snapfs hooks install'\n"

// excludeHooks has git pass over a file of hooks below a directory, or takes that back. It gives the file that it has
// changed for that, "" if none.
func excludeHooks(ctx context.Context, dir, name string, exclude bool) (string, error) {
	out, err := runGit(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude", "--show-prefix")
	if err != nil {
		return "", nil //nolint:nilerr // there is no repository, or none that git lets us use
	}
	path, prefix, _ := strings.Cut(out, "\n")
	if exclude {
		if _, err := runGit(ctx, dir, "check-ignore", "-q", "--", name); err == nil {
			return "", nil
		}
	}
	if path, err = realPath(path); err != nil {
		return "", err
	}
	special := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
	entry := excludeMark + "/" + special.Replace(strings.TrimSuffix(prefix, "\n")) + name + "\n"
	info := filepath.Dir(path)
	f := hookFile{dir: filepath.Dir(info), name: filepath.Join(filepath.Base(info), filepath.Base(path)), mode: 0o644}
	changed, err := f.rewrite(func(text string) (string, error) {
		text = strings.Replace(text, entry, "", 1)
		if exclude {
			text = entry + text
		}
		return text, nil
	})
	if !changed {
		path = ""
	}
	return path, err
}
