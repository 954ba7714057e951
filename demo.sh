#!/bin/bash
# The whole road on a directory of yours: ./demo.sh DIR
# Works in a temporary home and takes it away again. DIR is only read. Needs Go and root.
set -euo pipefail
[ $# = 1 ] && [ -d "$1" ] || { echo "usage: $0 DIR (a directory)" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "$0: run me as root" >&2; exit 1; }
dir=$(realpath -- "$1")
cd -- "$(dirname -- "$0")"

tmp=$(mktemp -d)
export SNAPFS_HOME=$tmp/home
finish() {
  local code=$?
  trap - EXIT
  [ ! -x "$tmp/snapfs" ] || timeout -k 5 60 "$tmp/snapfs" stop || true
  rm -rf --one-file-system -- "$tmp"
  exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM
GOFLAGS="${GOFLAGS:-} -buildvcs=false" go build -o "$tmp/snapfs" ./cmd/snapfs

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
snapfs() { # shows the command, then runs it, bounded in time
  printf '$ snapfs %s\n' "${*//$tmp\//}" >&2
  timeout -k 5 600 "$tmp/snapfs" "$@"
}

say "A workspace from $dir, which itself stays as it is"
snapfs up demo "$tmp/ws" --from "$dir"
ls -A "$tmp/ws" | head -n 10

say "Freeze it, work in it, freeze it again"
snapfs snapshot demo --name before
date >"$tmp/ws/made-by-demo"
first=$(find "$tmp/ws" -mindepth 1 -type f ! -name made-by-demo -print -quit)
[ -z "$first" ] || echo "changed by demo" >>"$first"
snapfs snapshot demo --name after --wait stored

say "What changed"
snapfs diff before after

say "Go another way from the first snapshot"
branch=$(snapfs branch before "$tmp/branch")
echo "$branch: $(ls -A "$tmp/branch" | wc -l) entries, $(ls -A "$tmp/ws" | wc -l) in the origin"
touch "$tmp/branch/only-in-the-branch"
snapfs diff before "$branch"

say "Back to the second snapshot, in a workspace of its own"
snapfs restore after "$tmp/restored"
diff -r --no-dereference "$tmp/ws" "$tmp/restored" && echo "the same, file by file"

say "An image that every squashfs reader reads"
snapfs export after "$tmp/demo.sqsh" --compression zstd --level 3
if command -v unsquashfs >/dev/null; then unsquashfs -s "$tmp/demo.sqsh" | sed -n 2,4p; fi

say "What there is, and the space that it takes"
snapfs list
snapfs snapshots
snapfs stats
