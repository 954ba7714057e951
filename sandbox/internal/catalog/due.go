package catalog

import (
	"container/heap"
)

// dueList are ids, the least of which is looked at first. A layer's id is greater than those of the layers that it was
// made on, so layers come before those above them.
type dueList struct {
	heap idHeap
	in   map[string]bool // the same
}

// add reports whether the id was not in the list.
func (d *dueList) add(id string) bool {
	if d.in[id] {
		return false
	}
	if d.in == nil {
		d.in = map[string]bool{}
	}
	d.in[id] = true
	heap.Push(&d.heap, id)
	return true
}

// first is the least id; "" if there is none.
func (d *dueList) first() string {
	if len(d.heap) == 0 {
		return ""
	}
	return d.heap[0]
}

// drop removes the least id.
func (d *dueList) drop() {
	delete(d.in, d.heap[0])
	heap.Pop(&d.heap)
}

type idHeap []string

func (h idHeap) Len() int           { return len(h) }
func (h idHeap) Less(i, k int) bool { return h[i] < h[k] }
func (h idHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *idHeap) Push(x any)        { *h = append(*h, x.(string)) }

func (h *idHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
