// Package posix is a suite of what POSIX and Linux say of file system calls: errno, permissions of several users, and
// what a call does to mode, owner, link count and times of an object and of its directory. It knows nothing of the file
// systems that it runs on.
//
// A case is a script in cases/, one file per call:
//
//	== what the case is about
//	@ regular dir fifo             the case once for each of these words, as $T
//	0 mkdir d 0755                 what is expected, and a command
//	--                             what stands before is preparation
//	EEXIST mkdir d 0700
//	u=65534 EACCES open d/f O_RDONLY
//
// Expected is 0 for success, the name of an errno, or what the command says; alternatives are separated by |. u= does
// the command as another user (g= group, G= supplementary groups, separated by commas). {N255} is a name of 255 bytes,
// {P4095} a path of 4,095. Every case has a directory of its own.
//
// The preparation may run elsewhere than the rest: in the lower of an overlay, which then starts from objects that it
// has to copy up.
//
// Times have the grain of the kernel's clock: "mark f" notes the times of f and waits until the clock has moved on;
// "moved f" then says which of them are others, as a subset of "mc".
package posix
