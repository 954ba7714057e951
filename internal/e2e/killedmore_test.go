package e2e

// moreKilledPrograms are further programs of TestKilled.
var moreKilledPrograms = []killedProgram{
	{name: "calls", work: `python3 "$TOOLS/calls.py" "$SEED" "$STOP"`},
	{
		name: "rsync", long: true, prepare: `mkdir src; cp -r "$(go env GOROOT)"/src/{strings,fmt,net} src/; rm -rf src/net/http`,
		work: until(`rsync -aHAX --delete "$OUT/src/" copy/; test -z "$(rsync -aHAXc --delete -in "$OUT/src/" copy/)"; for f in copy/fmt/*.go; do echo $n >> $f; done
			rsync -a --inplace --no-whole-file --ignore-times "$OUT/src/" copy/; diff -r copy "$OUT/src"; if [ $((n % 3)) = 0 ]; then rm -rf copy; fi; ! grep -rq nosuchtext+$n .`),
	},
	{
		name: "make", long: true, prepare: `mkdir src; cd src; for i in $(seq 40); do echo "#include <stdio.h>
			int f$i(int x) { char b[20]; return snprintf(b, 20, \"%d\", x + $i); }" > f$i.c; done; { echo '#include <stdio.h>'; for i in $(seq 40); do echo "int f$i(int);"; done; echo 'int main() { int s = 0;'; for i in $(seq 40); do echo "s += f$i(s);"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c
			printf 'O := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(O)\n\t$(CC) -o $@ $^\n%%.o: %%.c\n\t$(CC) -O1 -pipe -c -o $@ $<\nlib.a: $(O)\n\t$(AR) rcs $@ $^\n' > Makefile
			make -s -j2 prog; ./prog > ../want; make -s clean 2>/dev/null || rm -f *.o prog`,
		work:  `cp -r "$OUT/src" .; cd src; export TMPDIR=$PWD; ` + until(`make -s -j2 prog lib.a; ./prog | cmp - "$OUT/want"; ar t lib.a | wc -l | grep -qx 41; rm -f *.o prog lib.a`),
		check: `cd src; test -z "$(ls | grep -vE '^(f[0-9]+\.c|main.c|Makefile)$')"`,
	},
	{
		name: "worktrees", long: true, prepare: git + `mkdir src; cd src; cp -r "$(go env GOROOT)"/src/{strings,os} .; git init -q .; git add .; git commit -qm one`,
		work: git + `git clone -q "$OUT/src" main; cd main; ` + until(`git worktree add -q ../t$n -b b$n; (cd ../t$n; git mv os o; echo $n > new; git add new; git commit -qm "$n"; git status --porcelain | wc -l | grep -qx 0)
			git merge -q b$n -m merge$n >/dev/null; git reset -q --hard HEAD~1 2>/dev/null || git reset -q --hard; git worktree remove ../t$n; git branch -qD b$n; git gc -q --prune=now; git fsck --full --strict --no-progress --no-dangling`),
	},
	{
		name: "stacked", long: true,
		work: `mkdir l u w m fu fw fm; seq 1000 > l/a; cp -r "$(go env GOROOT)"/src/strings l/; ws=$PWD
			mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m
			fuse-overlayfs -f -o lowerdir=l,upperdir=fu,workdir=fw fm & fo=$!; until mountpoint -q fm; do sleep 0.1; done
			truncate -s 64M disk; mkfs.ext4 -q disk; mkdir d; mount -o loop disk d
			trap 'cd "$OUT"; for x in m fm d; do umount "$ws/$x" || umount -l "$ws/$x"; done' EXIT
			` + until(`for x in m fm d; do mkdir $x/n$n; seq $n 2000 > $x/n$n/f; mv $x/n$n/f $x/n$n/g; ln $x/n$n/g $x/n$n/h; seq $n 2000 | cmp - $x/n$n/h; done
				for x in m fm; do echo $n >> $x/a; tail -1 $x/a | grep -qx $n; rm -rf $x/strings/builder$n.go; done; for x in m fm d; do rm -r $x/n$n; done; sync -f d`) + `
			trap - EXIT; umount m fm d; wait $fo; PATH=$PATH:/usr/sbin:/sbin fsck.ext4 -fn disk > /dev/null; rm disk # what is allocated and was read counts as data`,
	},
	{
		name: "pip", long: true,
		work: until(`python3 -m venv v; v/bin/python -c 'import ssl, sqlite3, json; print(json.dumps(1))' | grep -qx 1; v/bin/pip --version > /dev/null; v/bin/python -m compileall -q -f v/lib/python3*/site-packages/pip > /dev/null; rm -rf v`),
	},
	{
		name: "watch", long: true,
		work: `touch log; tail -n +1 -F log > "$OUT/tailed" 2>/dev/null & tail=$!; trap 'kill $tail 2>/dev/null || true' EXIT
			` + until(`echo line$n >> log; if [ $((n % 500)) = 0 ]; then find . -type f | wc -l | grep -qx 1; fi`) + `
			for i in $(seq 100); do cmp -s log "$OUT/tailed" && break; sleep 0.1; done; kill $tail; trap - EXIT; cmp log "$OUT/tailed"; test "$(wc -l < log)" = $n`,
	},
	{
		name: "stress", long: true,
		work: until(`for s in flock lockf lockofd rename link dir fallocate seek xattr chmod mmap dentry; do
			stress-ng --temp-path . --$s 2 --timeout 2s --verify > ../log 2>&1 || { code=$?; test $code = 4 || { echo "$s: $code"; cat ../log; exit 1; }; }; done`),
	},
}
