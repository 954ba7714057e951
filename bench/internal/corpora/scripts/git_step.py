"""One step of a programmer with git: takes the first files in which a newer release differs, and commits them.

Usage: git_step.py WORKSPACE RELEASE STEP
"""
import os
import subprocess
import sys

FILES = 6

workspace, release, step = sys.argv[1], sys.argv[2], int(sys.argv[3])


def files(top):
    for d, dirs, names in os.walk(top):
        dirs[:] = sorted(n for n in dirs if n != ".git")
        for n in sorted(names):
            yield os.path.relpath(os.path.join(d, n), top)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def git(*args):
    when = "%d +0000" % (1_700_000_000 + step * 3600)
    env = dict(os.environ, GIT_AUTHOR_DATE=when, GIT_COMMITTER_DATE=when, GIT_CONFIG_GLOBAL="/dev/null",
               GIT_CONFIG_SYSTEM="/dev/null")
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0", *args],
                   cwd=workspace, env=env, check=True, stdout=subprocess.DEVNULL)


if step == 0:
    git("init", "-q")
else:
    changed = 0
    for name in files(release):
        new = read(os.path.join(release, name))
        path = os.path.join(workspace, name)
        if new == read(path):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(new)
        changed += 1
        if changed == FILES:
            break
git("add", "-A")
git("commit", "-q", "--allow-empty", "-m", "step %d" % step)
if len(sys.argv) > 4:
    git("gc", "-q")
