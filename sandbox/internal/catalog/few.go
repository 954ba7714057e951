package catalog

import (
	"iter"
	"maps"
	"slices"
)

// ids are ids, or names, in ascending order, each once.
type ids []string

// add adds an id; at the end, where most come, without moving others.
func (l *ids) add(id string) {
	if n := len(*l); n == 0 || (*l)[n-1] < id {
		*l = append(*l, id)
		return
	}
	if at, found := slices.BinarySearch(*l, id); !found {
		*l = slices.Insert(*l, at, id)
	}
}

func (l *ids) drop(id string) {
	if at, found := slices.BinarySearch(*l, id); found {
		*l = slices.Delete(*l, at, at+1)
	}
}

// after is the part of the list that comes after an id, which need not be in it.
func (l ids) after(id string) ids {
	at, found := slices.BinarySearch(l, id)
	if found {
		at++
	}
	return l[at:]
}

// newestBefore gives a batch of the list from the end, or from before an id, backwards.
func (l ids) newestBefore(id string) ids {
	at := len(l)
	if id != "" {
		at, _ = slices.BinarySearch(l, id)
	}
	some := slices.Clone(l[max(0, at-batch):at])
	slices.Reverse(some)
	return some
}

// lists are lists of ids by what they have in common.
type lists[K comparable] map[K]ids

func (l lists[K]) add(k K, id string) {
	list := l[k]
	list.add(id)
	l[k] = list
}

func (l lists[K]) drop(k K, id string) {
	list := l[k]
	if list.drop(id); len(list) == 0 {
		delete(l, k)
		return
	}
	l[k] = list
}

// fewMost is up to how many entries a few is a list.
const fewMost = 8

// few is a map for few entries: every layer has several of these maps. The zero value is empty.
type few[K comparable, V any] struct {
	list  []entry[K, V]
	table map[K]V // if not nil: all entries
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (f *few[K, V]) get(k K) (v V, ok bool) {
	if f.table != nil {
		v, ok = f.table[k]
		return v, ok
	}
	for _, e := range f.list {
		if e.key == k {
			return e.value, true
		}
	}
	return v, false
}

func (f *few[K, V]) has(k K) bool {
	_, ok := f.get(k)
	return ok
}

func (f *few[K, V]) put(k K, v V) {
	if f.table == nil && len(f.list) == fewMost && !f.has(k) {
		f.table = maps.Collect(f.all())
		f.list = nil
	}
	if f.table != nil {
		f.table[k] = v
		return
	}
	for i, e := range f.list {
		if e.key == k {
			f.list[i].value = v
			return
		}
	}
	f.list = append(f.list, entry[K, V]{k, v})
}

func (f *few[K, V]) drop(k K) {
	if f.table != nil {
		if delete(f.table, k); len(f.table) == 0 {
			f.table = nil
		}
		return
	}
	for i, e := range f.list {
		if e.key == k {
			f.list = slices.Delete(f.list, i, i+1)
			return
		}
	}
}

func (f *few[K, V]) size() int { return len(f.list) + len(f.table) }

// all gives the entries in no order.
func (f *few[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, e := range f.list {
			if !yield(e.key, e.value) {
				return
			}
		}
		for k, v := range f.table {
			if !yield(k, v) {
				return
			}
		}
	}
}

// set is a few of which the values say nothing.
type set = few[string, struct{}]
