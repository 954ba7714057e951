"""Random changes of names, links, attributes and files without a name, beside a model in memory: names.py SEED STOP

Ends with an error at the first call whose result is not that of the model. When the file STOP is there, the whole tree
is compared, and the number of operations is printed.
"""
import ctypes, errno, os, random, sys

seed, stop = int(sys.argv[1]), sys.argv[2]
rng = random.Random(seed)
libc = ctypes.CDLL(None, use_errno=True)
EXCHANGE, NOREPLACE, HERE = 2, 1, -100


class Inode:
    def __init__(self, kind, data=b""):
        self.kind, self.data, self.links, self.xattrs = kind, bytearray(data), 0, {}


tree = {}  # path: Inode
dirs = ["."]
opened = []  # (descriptor, Inode)
history = []


def path():
    return f"{rng.choice(dirs)}/n{rng.randrange(12)}"


def some(kind):
    names = [p for p, i in tree.items() if i.kind == kind]
    return rng.choice(names) if names else None


def expect(want, call, *args, **more):
    """Makes a call that has to end with an errno, 0 for none."""
    history.append(f"{call.__name__} {args}"[:120])
    try:
        result, got = call(*args, **more), 0
    except OSError as e:
        result, got = None, e.errno
    if got != want:
        same("errno", args, errno.errorcode.get(got, got), errno.errorcode.get(want, want))
    return result


def same(what, of, got, want):
    if got != want:
        raise SystemExit("\n".join(history[-30:]) + f"\n{what} of {str(of)[:100]}: got {str(got)[:300]}, wanted {str(want)[:300]}")


def add(p, inode):
    tree[p] = inode
    inode.links += 1


def drop(p):
    tree.pop(p).links -= 1


def create():
    p, data = path(), rng.randbytes(rng.randrange(300))
    fd = expect(errno.EEXIST if p in tree else 0, os.open, p, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    if fd is None:
        return
    inode = Inode("file", data)
    add(p, inode)
    expect(0, os.write, fd, data)
    opened.append((fd, inode))


def linkat(fd, p):
    if libc.linkat(HERE, f"/proc/self/fd/{fd}".encode(), HERE, p.encode(), 0x400):  # AT_SYMLINK_FOLLOW
        raise OSError(ctypes.get_errno(), "linkat")


def tmpfile():
    p = path()
    fd = expect(0, os.open, os.path.dirname(p), os.O_TMPFILE | os.O_RDWR, 0o644)
    inode = Inode("file", rng.randbytes(rng.randrange(300)))
    expect(0, os.write, fd, bytes(inode.data))
    opened.append((fd, inode))
    if rng.randrange(2):
        expect(errno.EEXIST if p in tree else 0, linkat, fd, p)
        if p not in tree:
            add(p, inode)


def link():
    a, b = some("file"), path()
    if a:
        expect(errno.EEXIST if b in tree else 0, os.link, a, b)
        if b not in tree:
            add(b, tree[a])


def unlink():
    p = path()
    want = errno.ENOENT if p not in tree else errno.EISDIR if tree[p].kind == "dir" else 0
    expect(want, os.unlink, p)
    if not want:
        drop(p)


def rename():
    a, b = some(rng.choice(["file", "link"])), path()
    if not a:
        return
    target = tree.get(b)
    expect(errno.EISDIR if target and target.kind == "dir" else 0, os.rename, a, b)
    if target and target.kind == "dir" or target is tree[a]:
        return
    inode = tree[a]
    drop(a)
    if target:
        drop(b)
    add(b, inode)


def rename2(a, b, flags):
    if libc.renameat2(HERE, a.encode(), HERE, b.encode(), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def exchange():
    a, b = some("file"), some(rng.choice(["file", "link"]))
    if a and b:
        expect(0, rename2, a, b, EXCHANGE)
        tree[a], tree[b] = tree[b], tree[a]


def noreplace():
    a, b = some("file"), path()
    if a:
        expect(errno.EEXIST if b in tree else 0, rename2, a, b, NOREPLACE)
        if b not in tree:
            add(b, tree[a])
            drop(a)


def mkdir():
    p = f"d{rng.randrange(6)}"
    expect(errno.EEXIST if p in dirs else 0, os.mkdir, p)
    if p not in dirs:
        dirs.append(p)


def rmdir():
    p = f"d{rng.randrange(6)}"
    full = any(os.path.dirname(n) == p for n in tree)
    want = errno.ENOENT if p not in dirs else errno.ENOTEMPTY if full else 0
    expect(want, os.rmdir, p)
    if not want:
        dirs.remove(p)


def renamedir():
    a, b = f"d{rng.randrange(6)}", f"d{rng.randrange(6)}"
    if a in dirs and b not in dirs:
        expect(0, os.rename, a, b)
        dirs[dirs.index(a)] = b
        for n in [n for n in tree if os.path.dirname(n) == a]:
            tree[f"{b}/{os.path.basename(n)}"] = tree.pop(n)


def symlink():
    p = path()
    target = f"to{rng.randrange(1000)}"
    expect(errno.EEXIST if p in tree else 0, os.symlink, target, p)
    if p not in tree:
        add(p, Inode("link", target.encode()))


def xattr():
    p = some("file")
    if not p:
        return
    have, name, value = tree[p].xattrs, f"user.x{rng.randrange(3)}", rng.randbytes(9)
    what = rng.randrange(3)
    if what == 0:
        expect(errno.EEXIST if name in have else 0, os.setxattr, p, name, value, os.XATTR_CREATE)
        have.setdefault(name, value)
    elif what == 1:
        expect(0 if name in have else errno.ENODATA, os.setxattr, p, name, value, os.XATTR_REPLACE)
        if name in have:
            have[name] = value
    else:
        expect(0 if name in have else errno.ENODATA, os.removexattr, p, name)
        have.pop(name, None)


def change():
    if not opened:
        return
    fd, inode = rng.choice(opened)
    what = rng.randrange(4)
    if what == 0:
        at, data = rng.randrange(500), rng.randbytes(rng.randrange(1, 300))
        expect(0, os.pwrite, fd, data, at)
        inode.data.extend(bytes(max(0, at + len(data) - len(inode.data))))
        inode.data[at:at + len(data)] = data
    elif what == 1:
        n = rng.randrange(800)
        expect(0, os.ftruncate, fd, n)
        del inode.data[n:]
        inode.data.extend(bytes(n - len(inode.data)))
    elif what == 2:
        other, source = rng.choice(opened)
        if source is not inode and source.data:
            n = expect(0, os.copy_file_range, other, fd, len(source.data), 0, 0)
            inode.data[:n] = source.data[:n]
    elif len(opened) > 20:
        os.close(fd)
        opened.remove((fd, inode))


def look():
    for fd, inode in opened:
        got, st = os.pread(fd, 10000, 0), os.fstat(fd)
        same("descriptor", fd, (st.st_nlink, st.st_size), (inode.links, len(inode.data)))
        same("contents", fd, got, bytes(inode.data))


def whole():
    look()
    for d in dirs:
        want = {os.path.basename(n) for n in tree if os.path.dirname(n) == d}
        same("names", d, {n for n in os.listdir(d) if d != "." or n not in dirs}, want)
    for p, inode in tree.items():
        same("links", p, os.lstat(p).st_nlink, inode.links)
        if inode.kind == "link":
            same("target", p, os.readlink(p).encode(), bytes(inode.data))
            continue
        with open(p, "rb") as f:
            same("contents", p, f.read(), bytes(inode.data))
        same("attributes", p, {n: os.getxattr(p, n) for n in os.listxattr(p)}, inode.xattrs)


actions = [create, create, tmpfile, link, link, unlink, unlink, rename, rename, exchange, noreplace, mkdir, rmdir,
           renamedir, symlink, xattr, xattr, change, change, change, look]
steps = 0
while not os.path.exists(stop):
    rng.choice(actions)()
    steps += 1
    if steps % 500 == 0:
        whole()
whole()
print(steps)
