package kubernetes_test

import (
	"net/http"
	"testing"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// suiteSite is a site of the suite. Its managers watch the cluster, or list.
type suiteSite struct {
	*site
	watch bool
}

// Open returns a backend.
func (s suiteSite) Open(manager string) pilot.Backend { return s.open(manager, "") }

func (s suiteSite) open(manager, image string) pilot.Backend {
	b := s.backend(manager, "")
	if image != "" {
		b.Settings.Image = image
	}
	if s.watch {
		s.watched(b)
	}
	return b
}

// OpenTroubled returns a backend whose image no registry has.
func (s suiteSite) OpenTroubled(manager string) (b pilot.Backend, words string) {
	return s.open(manager, "127.0.0.1:1/none:1"), "127.0.0.1:1/none:1"
}

// LoseAnswer loses the answer of the next creation.
func (s suiteSite) LoseAnswer() {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	s.proxy.lose++
}

// Vanish deletes a pod as kubectl delete --force does.
func (s suiteSite) Vanish(t *testing.T, name string) {
	t.Helper()
	s.api(http.MethodDelete, s.path("pods/"+name)+"?gracePeriodSeconds=0", nil)
}

// Finish ends the worker of a pod.
func (s suiteSite) Finish(t *testing.T, name string) {
	t.Helper()
	s.finish(name)
}

// Cut lets n changes be answered.
func (s suiteSite) Cut(n int) {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	s.proxy.left = n
}

// Mend ends Cut.
func (s suiteSite) Mend() {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	s.proxy.left, s.proxy.down = -1, false
}

func TestBackendOnARealClusterKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]bool{"with a watch": true, "with lists": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pilottest.Run(t, func(t *testing.T) pilottest.Site {
				t.Helper()
				return suiteSite{newSite(t), watch}
			})
		})
	}
}
