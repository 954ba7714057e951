package posix

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed cases
var sources embed.FS

// Case is one script.
type Case struct {
	Name          string // call/title/word; the directory it runs in
	Dir           string
	Prepare, Then []Line
}

// Line is an expectation and a command.
type Line struct {
	Where  string // file and line
	Want   []string
	UID    int
	GID    int
	Groups []int
	Args   []string
}

// long are the placeholders of names and paths of a length.
var long = regexp.MustCompile(`\{([NP])(\d+)\}`)

// expand makes a name of n bytes, or a path of n bytes whose elements are "./" and one "x".
func expand(s string) string {
	return long.ReplaceAllStringFunc(s, func(p string) string {
		m := long.FindStringSubmatch(p)
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return p
		}
		if m[1] == "N" {
			return strings.Repeat("n", n)
		}
		return strings.Repeat("./", n/2)[:n-1] + "x"
	})
}

// Cases reads all scripts.
func Cases() ([]Case, error) {
	files, err := fs.Glob(sources, "cases/*.txt")
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, file := range files {
		text, err := fs.ReadFile(sources, file)
		if err != nil {
			return nil, err
		}
		call := strings.TrimSuffix(path.Base(file), ".txt")
		for i, block := range strings.Split("\n"+string(text), "\n== ")[1:] {
			title, body, _ := strings.Cut(block, "\n")
			words := []string{""}
			if rest, ok := strings.CutPrefix(body, "@ "); ok {
				list, after, _ := strings.Cut(rest, "\n")
				words, body = strings.Fields(list), after
			}
			for k, word := range words {
				c := Case{Name: strings.TrimSuffix(call+"/"+title+"/"+word, "/"), Dir: fmt.Sprintf("%s-%d-%d", call, i, k)}
				if err := c.parse(strings.ReplaceAll(body, "$T", word)); err != nil {
					return nil, fmt.Errorf("%s: %w", c.Name, err)
				}
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// parse reads the lines of a case.
func (c *Case) parse(body string) error {
	for n, text := range strings.Split(body, "\n") {
		args := strings.Fields(text)
		if len(args) == 0 || args[0] == "#" {
			continue
		}
		if args[0] == "--" {
			c.Prepare, c.Then = c.Then, nil
			continue
		}
		l := Line{Where: fmt.Sprintf("%d %s", n+1, text)}
		for len(args) > 0 && len(args[0]) > 2 && args[0][1] == '=' {
			var ids []int
			for _, s := range strings.Split(args[0][2:], ",") {
				id, err := strconv.Atoi(s)
				if err != nil {
					return fmt.Errorf("line %q: %w", text, err)
				}
				ids = append(ids, id)
			}
			switch args[0][0] {
			case 'u':
				l.UID, l.GID = ids[0], ids[0]
			case 'g':
				l.GID = ids[0]
			case 'G':
				l.Groups = ids
			}
			args = args[1:]
		}
		if len(args) < 2 {
			return fmt.Errorf("line %q: no command", text)
		}
		l.Want, l.Args = strings.Split(expand(args[0]), "|"), args[1:]
		for i := range l.Args {
			l.Args[i] = expand(l.Args[i])
		}
		c.Then = append(c.Then, l)
	}
	return nil
}
