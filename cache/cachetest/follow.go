package cachetest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// follow waits for the end of a process, and then judges what it has left.
func (s *storm) follow(n int, p *testenv.Process, work workerOrders) {
	ended := make(chan struct{})
	if work.Fate.Signal == syscall.SIGSTOP {
		s.group.Go(func() error { s.wake(p, ended); return nil })
	}
	_, copyErr := io.Copy(io.Discard, p)
	err := p.Wait()
	close(ended)
	s.mu.Lock()
	delete(s.alive, n)
	s.mu.Unlock()
	if err != nil || copyErr != nil {
		s.broken("process %d: %v, %v", n, err, copyErr)
	}
	records, err := readJournal(s.Logs, n)
	if err != nil {
		s.broken("process %d: %v", n, err)
	}
	if len(records) == 0 || records[len(records)-1].Did != didEnd {
		s.tally("killed")
		s.startProcess()
		s.checkHeld(work, records)
	}
	if err := os.WriteFile(filepath.Join(s.Logs, fmt.Sprintf("p%d.over", n)), nil, 0o600); err != nil {
		s.broken("process %d: %v", n, err)
	}
}

// wake continues a stopped process after its lease has ended.
func (s *storm) wake(p *testenv.Process, ended <-chan struct{}) {
	look := 20 * time.Millisecond
	if s.Through != nil {
		look = time.Second // each check is a connection
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(look):
		}
		if !p.Stopped() {
			continue
		}
		_ = pause.For(s.Context(), 2*s.options.Term+max(s.options.Settle, 0))
		p.Signal(syscall.SIGCONT)
	}
}

// checkHeld checks that the contents that a dead process has pinned for holders that are not over
// are unchanged.
func (s *storm) checkHeld(work workerOrders, records []record) {
	held := map[string]record{}
	for _, r := range records {
		switch {
		case r.Did == didGet && r.Holder != "" && r.Fill != "":
			held[r.Holder] = r
		case r.Did == didUnpin:
			delete(held, r.Holder)
		}
	}
	if len(held) == 0 {
		return
	}
	w := worker{workerOrders: work, journal: nil, contents: s.contents}
	_ = pause.For(s.Context(), s.options.Term)
	for h, r := range held {
		s.tally("outlived")
		got := w.compare(s.contents[r.Key], r.Path, r.Fill, cache.Holder(h))
		if got.Wrong != "" {
			s.broken("after process %d had died: %s", work.Process, got.Wrong)
		}
	}
}
