package server_test

import (
	"net/http"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// BenchmarkPostRun creates runs that stay staged.
func BenchmarkPostRun(b *testing.B) {
	s := newSite(b)
	body := object("bundles", map[string]any{"bundle_type": "run", "command": "x", "metadata": metadata("run", "job", map[string]any{"request_queue": "nosuch"})})
	path := "/bundles?worksheet=" + s.home("alice")
	for b.Loop() {
		s.call("alice", http.MethodPost, path, body).ok()
	}
}

func BenchmarkGetBundle(b *testing.B) {
	s := newSite(b)
	uuid := s.run("x", map[string]any{"request_queue": "nosuch"}, codalab.Dependency{ParentUUID: codalab.NewUUID(), ChildPath: "in"})
	for b.Loop() {
		s.get("alice", "/bundles/"+uuid).ok()
	}
}

// BenchmarkRunToMessage is from the request that creates a run to the answer
// that tells a waiting worker of it.
func BenchmarkRunToMessage(b *testing.B) {
	s := newSite(b)
	w := s.worker("alice", "w", "cpu")
	w.info.CPUs = 1 << 40
	w.info.MemoryBytes = 1 << 60
	for b.Loop() {
		waiting := w.checkInAside()
		s.run("x", cpuQueue)
		if got := <-waiting; len(got.messages) != 1 {
			b.Fatalf("told %+v", got.messages)
		}
	}
}
