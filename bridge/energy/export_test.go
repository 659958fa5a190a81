package energy

// Waiting returns the number of bundles whose energy is to be told.
func Waiting(w *Watch) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wanted)
}
