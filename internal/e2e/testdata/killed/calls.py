"""Calls that other programs of these tests do not make, over and over, each beside what it must give: calls.py SEED STOP

Locks of all kinds are held all the time, and another process must not get them. Files are copied by the kernel, run,
mapped, made without a name, and have holes, attributes and lists of access rights.
Ends with an error at the first result that is not the one that is wanted. When the file STOP is there, the number of
rounds is printed.
"""
import ctypes, errno, fcntl, mmap, os, random, shutil, signal, stat, struct, subprocess, sys

seed, stop = int(sys.argv[1]), sys.argv[2]
rng = random.Random(seed)
GETLK, SETLK, OFD_GETLK, OFD_SETLK = fcntl.F_GETLK, fcntl.F_SETLK, 36, 37


def want(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: {got!r}, wanted {wanted!r}")


def fails(what, number, fn, *args):
    try:
        fn(*args)
    except OSError as e:
        want(what, errno.errorcode[e.errno], errno.errorcode[number])
        return
    raise SystemExit(f"{what}: no error, wanted {errno.errorcode[number]}")


def write(name, data, mode=0o644):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    while data:
        data = data[os.write(fd, data):]
    os.close(fd)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def flock_of(kind, start, length):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


# Held until the end, by this process.
posix = os.open("posix", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(posix, SETLK, flock_of(fcntl.F_WRLCK, 100, 50))
fcntl.fcntl(posix, SETLK, flock_of(fcntl.F_RDLCK, 1000, 1))
ofd = os.open("ofd", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(ofd, OFD_SETLK, flock_of(fcntl.F_WRLCK, 7, 3))
whole = os.open("whole", os.O_RDWR | os.O_CREAT)
fcntl.flock(whole, fcntl.LOCK_EX)
leased = os.open("leased", os.O_RDONLY | os.O_CREAT)
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append(1))
try:
    fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_RDLCK)
except OSError as e:  # such as a file system without leases
    leased = None
os.mkdir("cwd")
os.mkdir("cwd/inner")
inside = os.open("cwd/inner", os.O_RDONLY | os.O_DIRECTORY)
shutil.copy("/bin/sleep", "sleep")
running = subprocess.Popen(["./sleep", "100000"], cwd="cwd/inner/../..")


def locks():
    """Tried by another process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            fd = os.open("posix", os.O_RDWR)
            for kind, at, n in (fcntl.F_RDLCK, 149, 1), (fcntl.F_WRLCK, 0, 0), (fcntl.F_WRLCK, 1000, 1):
                fails("a lock that another process has", errno.EAGAIN, fcntl.fcntl, fd, SETLK, flock_of(kind, at, n))
            for kind, at, n in (fcntl.F_WRLCK, 150, 10), (fcntl.F_RDLCK, 1000, 1):
                fcntl.fcntl(fd, SETLK, flock_of(kind, at, n))
            fails("a lock of an open file", errno.EAGAIN, fcntl.fcntl, os.open("ofd", os.O_RDWR), OFD_SETLK, flock_of(fcntl.F_RDLCK, 9, 9))
            fails("flock", errno.EWOULDBLOCK, fcntl.flock, os.open("whole", os.O_RDWR), fcntl.LOCK_SH | fcntl.LOCK_NB)
            code = 0
        finally:
            os._exit(code)
    want("the locks, for another process", os.waitpid(pid, 0)[1], 0)
    if leased is not None:
        want("the lease", fcntl.fcntl(leased, fcntl.F_GETLEASE), fcntl.F_RDLCK)
        want("the lease was broken", broken, [])


def program():
    fails("write to a program that runs", errno.ETXTBSY, os.open, "sleep", os.O_WRONLY)
    want("the program that runs", running.poll(), None)
    write("script", b"#!/bin/sh\necho $((1 + $1))\n", 0o755)
    want("a script", subprocess.run(["./script", "41"], capture_output=True).stdout, b"42\n")
    shutil.copy("/usr/bin/id", "id")
    os.chown("id", 1, 1)
    os.chmod("id", 0o6755)
    got = subprocess.run(["setpriv", "--reuid=2", "--regid=2", "--clear-groups", "./id", "-u"], capture_output=True).stdout
    want("setuid", got, b"2\n" if os.statvfs(".").f_flag & os.ST_NOSUID else b"1\n")
    os.unlink("id")


def copies():
    data = rng.randbytes(rng.randrange(1, 300000))
    write("from", data)
    src = os.open("from", os.O_RDONLY)
    for way in range(3):
        dst = os.open("to", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        left, r, w = len(data), *os.pipe()
        os.lseek(src, 0, os.SEEK_SET)
        while left:
            if way == 0:
                n = os.copy_file_range(src, dst, left)
            elif way == 1:
                n = os.sendfile(dst, src, None, left)
            else:
                n = os.splice(src, w, min(left, 65536))
                done = 0
                while done < n:
                    done += os.splice(r, dst, n - done)
            if n == 0:
                raise SystemExit(f"copy {way}: {left} bytes are missing")
            left -= n
        for fd in (r, w, dst):
            os.close(fd)
        want(f"copy {way}", read("to") == data, True)
    os.close(src)


def holes():
    fd = os.open("holes", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"x" * 4096, 512 << 10)
    want("where data are", os.lseek(fd, 0, os.SEEK_DATA), 512 << 10)
    want("where a hole is", os.lseek(fd, 512 << 10, os.SEEK_HOLE), 516 << 10)
    fails("data behind the last ones", errno.ENXIO, os.lseek, fd, 600 << 10, os.SEEK_DATA)
    os.close(fd)


def nameless():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    data = rng.randbytes(5000)
    os.write(fd, data)
    want("links of a file without a name", os.fstat(fd).st_nlink, 0)
    os.link(f"/proc/self/fd/{fd}", "named", src_dir_fd=inside)  # Python follows links only of a directory
    want("links of a file with a name", os.fstat(fd).st_nlink, 1)
    os.close(fd)
    want("what it has", read("named") == data, True)
    os.unlink("named")


def rights():
    write("rights", b"")
    rule = f"u:{rng.randrange(1, 60000)}:r--"
    subprocess.run(["setfacl", "-m", rule, "rights"], check=True)
    text = subprocess.run(["getfacl", "-cn", "rights"], capture_output=True, check=True, text=True).stdout
    want("rule", "user" + rule[1:] in text, True)
    os.setxattr("rights", "user.a", b"1" * 300, os.XATTR_CREATE)
    fails("attribute that is there", errno.EEXIST, os.setxattr, "rights", "user.a", b"", os.XATTR_CREATE)
    os.removexattr("rights", "user.a")
    fails("attribute that is removed", errno.ENODATA, os.removexattr, "rights", "user.a")
    os.unlink("rights")


def below():
    want("the directory that a process has", os.path.basename(os.readlink(f"/proc/{running.pid}/cwd")), os.path.basename(os.getcwd()))
    name = f"n{rng.randrange(5)}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=inside)
    fails("exclusive creation", errno.EEXIST, lambda: os.open(name, os.O_CREAT | os.O_EXCL, dir_fd=inside))
    os.close(fd)
    want("listing", os.listdir(inside), [name])
    os.rename(name, "moved", src_dir_fd=inside, dst_dir_fd=inside)
    os.unlink("moved", dir_fd=inside)


rounds = 0
while rounds == 0 or not os.path.exists(stop):
    for fn in rng.sample((locks, program, copies, holes, nameless, rights, below), 7):
        fn()
    rounds += 1
running.kill()
running.wait()
print(rounds)
