package gitcommit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"snapfs/sandbox/api"
)

// settings keep git from running programs of the repository, from reading and writing more than it must, and from
// leaving objects behind a branch that are not on the disk.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.splitIndex=false",
	"core.sparseCheckout=false", "index.sparse=false", "gc.auto=0", "maintenance.auto=false",
	"core.fsync=committed,loose-object", "core.fsyncMethod=batch", "log.showSignature=false",
}

// kept are the variables of the caller that git gets: who commits and when, and which configuration counts.
var kept = []string{
	"GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_", "GIT_CEILING_DIRECTORIES=", "GIT_DISCOVERY_ACROSS_FILESYSTEM=",
}

// environment is that of this process, without what leads git to another repository.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		keep := !strings.HasPrefix(v, "GIT_")
		for _, prefix := range kept {
			keep = keep || strings.HasPrefix(v, prefix)
		}
		if keep {
			env = append(env, v)
		}
	}
	// Nothing is fetched, and nobody is asked.
	return append(env, "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1")
}

// command is a run of git.
type command struct {
	dir  string
	env  []string
	in   string
	args []string
}

// verb is the verb of git that runs.
func (c command) verb() string {
	for i := 0; i < len(c.args); i++ {
		if c.args[i] != "-c" {
			return c.args[i]
		}
		i++
	}
	return ""
}

// gitError is that git has ended with an error.
type gitError struct {
	verb, text string
	code       int
}

// Error implements error.
func (e *gitError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("git %s ended with %d", e.verb, e.code)
	}
	return fmt.Sprintf("git %s: %s", e.verb, e.text)
}

// run runs git, and gives what it prints.
func run(ctx context.Context, c command) (string, error) {
	var args []string
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	cmd := exec.CommandContext(ctx, "git", append(args, c.args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, strings.NewReader(c.in)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // then it removes its locks
	cmd.WaitDelay = 10 * time.Second
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: git is not installed, or not in PATH", api.ErrUnavailable)
	case errors.As(err, &exit):
		return "", &gitError{verb: c.verb(), text: said(text.String()), code: exit.ExitCode()}
	}
	return out.String(), err
}

// said is what git has said, without its prefixes, on one line of bounded length.
func said(text string) string {
	const most = 600
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"fatal: ", "error: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line != "" && !strings.HasPrefix(line, "hint: ") && !strings.HasPrefix(line, "warning: ") {
			lines = append(lines, line)
		}
	}
	all := strings.Join(lines, "; ")
	if len(all) > most {
		all = strings.ToValidUTF8(all[:most], "") + "…"
	}
	return all
}
