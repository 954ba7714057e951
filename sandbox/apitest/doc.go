// Package apitest is the suite that every implementation of sandbox.API passes: Run it from a test of the
// implementation.
//
// The process that runs it may serve the mounts itself, and so must never touch them: everything inside a mount is done
// by child processes (a shell, or the walker of package treewalk, for which the test binary calls treewalk.Child first
// thing in TestMain).
package apitest
