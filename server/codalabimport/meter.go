package codalabimport

import "sync"

// meter adds up the progress of several goroutines.
type meter struct {
	mu   sync.Mutex
	done int64
	show func(done int64)
}

func newMeter(show func(int64)) *meter { return &meter{show: show} }

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	m.show(m.done)
}
