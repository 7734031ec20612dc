package partition

// Spans is how many facts about relations a remembers.
func (a *Assigner) Spans() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.spans {
		n += len(of)
	}
	return n
}
