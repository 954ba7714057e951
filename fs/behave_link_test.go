package fs_test

import (
	"os"
	"syscall"
)

var linkBehaviours = map[string]behaviour{
	"HardLinks": {
		seed: func(w *world) {
			w.write("a", "shared")
			w.must(os.Mkdir(w.path("d"), 0o755))
			w.must(os.Link(w.path("a"), w.path("d/b")))
		},
		check: func(w *world) {
			if a, b := w.stat("a"), w.stat("d/b"); a.Ino != b.Ino || a.Nlink != 2 {
				w.Errorf("ino %d and %d, nlink %d", a.Ino, b.Ino, a.Nlink)
			}
			f := w.open("a", os.O_WRONLY|os.O_APPEND)
			_, err := f.WriteString(" text")
			w.must(err)
			w.wantText("d/b", "shared text")
			w.must(os.Link(w.path("d/b"), w.path("c")))
			if st := w.stat("a"); st.Nlink != 3 {
				w.Errorf("nlink %d, want 3", st.Nlink)
			}
			w.must(os.Remove(w.path("a")))
			if st := w.stat("c"); st.Nlink != 2 {
				w.Errorf("nlink %d, want 2", st.Nlink)
			}
			w.wantText("c", "shared text")
			w.want("of a directory", os.Link(w.path("d"), w.path("e")), syscall.EPERM)
			w.want("over a name", os.Link(w.path("c"), w.path("d/b")), syscall.EEXIST)
			// rename(2): two names of one file stay as they are
			w.must(os.Rename(w.path("c"), w.path("d/b")))
			w.wantText("c", "shared text")
		},
	},
}
