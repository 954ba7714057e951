package livestate

// Began gives when a process began, as claims have it.
func Began(pid int) uint32 {
	began, _ := lifeOf(pid)
	return began
}
