// Package e2e tests snapfs from outside: the real binary, real programs in its mounts, other people's squashfs readers
// as referees. It has nothing but tests.
//
// Each test has a home directory of its own below the test's temporary directory, and every process that it starts is
// bounded in time. At the end of a test its daemon is stopped, and whatever is left (a mount, a process, a loop device)
// is taken away and fails the test. The test process itself never looks into a mount: programs and the walker do, in
// processes that can be killed.
package e2e
