//go:build !race || !amd64

package lockorder

import "sync"

// Mutex is a lock of class C.
type Mutex[C any] = sync.Mutex

// RWMutex is a lock of class C for one writer or many readers.
type RWMutex[C any] = sync.RWMutex

// Token stands for a lock of class C that is not one of package sync, such as a channel, and is part of it.
type Token[C any] struct{}

// Take says that the lock is going to be waited for, Try that it was taken without waiting, Drop that it is free again.
func (*Token[C]) Take() {}
func (*Token[C]) Try()  {}
func (*Token[C]) Drop() {}

// Pass says that the calling goroutine is no longer the holder of a lock: another one will unlock it, or the same one
// in a later call. It takes the address of the lock.
func Pass(any) {}
