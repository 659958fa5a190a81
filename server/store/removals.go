package store

import (
	"slices"
	"sync"
)

// removals removes contents in the background, one after the other, because contents may have millions of
// files. Sweep removes the rest after the store was closed.
type removals struct {
	mu     sync.Mutex
	names  []string // to remove; the first one is being removed
	closed bool
	work   sync.WaitGroup
}

// RemoveLater removes contents that no bundle names any more. It does not wait for that. An empty name
// means none.
func (s *Store) RemoveLater(name string) {
	r := &s.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" || r.closed || slices.Contains(r.names, name) {
		return
	}
	if r.names = append(r.names, name); len(r.names) == 1 {
		r.work.Go(func() { s.removeAll() })
	}
}

func (s *Store) removeAll() {
	r := &s.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.names) > 0 && !r.closed {
		name := r.names[0]
		r.mu.Unlock()
		if err := s.RemoveContents(name); err != nil && s.Failed != nil {
			s.Failed(err)
		}
		r.mu.Lock()
		r.names = slices.Delete(r.names, 0, 1)
	}
}

// waiting returns the names of the contents that are not removed yet.
func (r *removals) waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}

// close waits for the removal under way.
func (r *removals) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Wait()
}
