//go:build race && amd64

package lockorder

import (
	"reflect"
	"sync"
)

// Mutex is a lock of class C. Its methods do what those of sync.Mutex do.
type Mutex[C any] struct {
	state
	mu sync.Mutex
}

func (m *Mutex[C]) Lock() {
	m.take(reflect.TypeFor[C]())
	m.mu.Lock()
}

func (m *Mutex[C]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.try(reflect.TypeFor[C]())
	return true
}

func (m *Mutex[C]) Unlock() {
	m.drop()
	m.mu.Unlock()
}

// RWMutex is a lock of class C for one writer or many readers. Its methods do what those of sync.RWMutex do.
type RWMutex[C any] struct {
	state
	mu sync.RWMutex
}

func (m *RWMutex[C]) Lock() {
	m.take(reflect.TypeFor[C]())
	m.mu.Lock()
}

func (m *RWMutex[C]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.try(reflect.TypeFor[C]())
	return true
}

func (m *RWMutex[C]) Unlock() {
	m.drop()
	m.mu.Unlock()
}

func (m *RWMutex[C]) RLock() {
	m.take(reflect.TypeFor[C]())
	m.mu.RLock()
}

func (m *RWMutex[C]) TryRLock() bool {
	if !m.mu.TryRLock() {
		return false
	}
	m.try(reflect.TypeFor[C]())
	return true
}

func (m *RWMutex[C]) RUnlock() {
	m.drop()
	m.mu.RUnlock()
}

// RLocker is as in package sync.
func (m *RWMutex[C]) RLocker() sync.Locker { return reader[C]{m} }

type reader[C any] struct{ m *RWMutex[C] }

func (r reader[C]) Lock()   { r.m.RLock() }
func (r reader[C]) Unlock() { r.m.RUnlock() }

// Token stands for a lock of class C that is not one of package sync, such as a channel, and is part of it.
type Token[C any] struct{ state }

// Take says that the lock is going to be waited for, Try that it was taken without waiting, Drop that it is free again.
func (t *Token[C]) Take() { t.take(reflect.TypeFor[C]()) }
func (t *Token[C]) Try()  { t.try(reflect.TypeFor[C]()) }
func (t *Token[C]) Drop() { t.drop() }

// Pass says that the calling goroutine is no longer the holder of a lock: another one will unlock it, or the same one
// in a later call. It takes the address of the lock.
func Pass(l interface{ pass() }) { l.pass() }
