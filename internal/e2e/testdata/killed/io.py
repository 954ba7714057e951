"""Random reads and writes of files, each way of its own, beside a copy in memory: io.py SEED STOP

Ends with an error at the first call that fails, or that reads what was not written. When the file STOP is there, all
files are read once more, and the number of operations is printed.
"""
import mmap, os, random, sys

seed, stop = int(sys.argv[1]), sys.argv[2]
rng = random.Random(seed)
SIZE, PAGE = 2 << 20, 4096
direct = mmap.mmap(-1, 64 << 10)  # aligned as O_DIRECT wants it


class File:
    def __init__(self, name, flags=0):
        self.name = name
        self.fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o644)
        self.want = bytearray()

    def wrote(self, at, data):
        if len(self.want) < at + len(data):
            self.want.extend(bytes(at + len(data) - len(self.want)))
        self.want[at:at + len(data)] = data

    def check(self, what, at, got, n):
        want = bytes(self.want[at:at + n])
        if got != want:
            bad = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise SystemExit(f"{self.name}: {what} of {n} bytes at {at}: {len(got)} bytes, wanted {len(want)}, other from {at + bad}")

    def write_all(self, at, data):
        while data:
            n = os.pwrite(self.fd, data, at)
            self.wrote(at, data[:n])
            at, data = at + n, data[n:]

    def step(self):
        at, n = rng.randrange(SIZE), rng.randrange(1, 64 << 10)
        what = rng.randrange(20)
        if what < 9:
            self.write_all(at, rng.randbytes(n))
        elif what < 16:
            self.check("read", at, os.pread(self.fd, n, at), n)
        elif what == 16:
            os.ftruncate(self.fd, at)
            del self.want[at:]
            self.want.extend(bytes(at - len(self.want)))
        elif what == 17:
            os.fsync(self.fd)
        elif what == 18:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            os.posix_fallocate(self.fd, at, n)
            self.wrote(at, self.want[at:at + n].ljust(n, b"\0"))
        if os.fstat(self.fd).st_size != len(self.want):
            raise SystemExit(f"{self.name}: size {os.fstat(self.fd).st_size}, wanted {len(self.want)}")

    def end(self):
        os.fsync(self.fd)
        self.check("the end", 0, open(self.name, "rb").read(), SIZE * 2)


class Appended(File):
    def __init__(self, name):
        super().__init__(name, os.O_APPEND)

    def step(self):
        data = rng.randbytes(rng.randrange(1, 2000))
        self.wrote(len(self.want), data[:os.write(self.fd, data)])
        if len(self.want) > SIZE:
            os.ftruncate(self.fd, 0)
            self.want = bytearray()


class Direct(File):
    def __init__(self, name):
        super().__init__(name, os.O_DIRECT)

    def step(self):
        at, n = rng.randrange(SIZE // PAGE) * PAGE, rng.randrange(1, 16) * PAGE
        buffer = memoryview(direct)[:n]
        if rng.randrange(2):
            buffer[:] = rng.randbytes(n)
            done = os.pwritev(self.fd, [buffer], at)
            self.wrote(at, bytes(buffer[:done]))
        else:
            done = os.preadv(self.fd, [buffer], at)
            self.check("direct read", at, bytes(buffer[:done]), n)


class Mapped(File):
    def __init__(self, name):
        super().__init__(name)
        os.ftruncate(self.fd, SIZE)
        self.want = bytearray(SIZE)
        self.map = mmap.mmap(self.fd, SIZE)

    def step(self):
        at, n = rng.randrange(SIZE - PAGE), rng.randrange(1, PAGE)
        what = rng.randrange(10)
        if what < 4:
            data = rng.randbytes(n)
            self.map[at:at + n] = data
            self.wrote(at, data)
        elif what < 7:
            self.check("mapped read", at, self.map[at:at + n], n)
        elif what == 7:
            self.check("read", at, os.pread(self.fd, n, at), n)
        elif what == 8:
            self.map.flush()
        else:
            self.map.flush()
            self.map.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def end(self):
        self.map.flush()
        super().end()


files = [File("buffered"), Appended("appended"), Direct("direct"), Mapped("mapped")]
steps = 0
while not os.path.exists(stop):
    files[rng.randrange(len(files))].step()
    steps += 1
for f in files:
    f.end()
print(steps)
