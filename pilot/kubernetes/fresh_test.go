package kubernetes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// The answer of a creation and the watch's reports come on different connections, in any order.
func TestCreatedPodIsShownUntilTheWatchKnowsBetter(t *testing.T) {
	t.Parallel()
	name := prefix + pilot.NewID()
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	for what, test := range map[string]struct {
		events func(w *watcher, s *store) error
		shown  int
	}{
		"no report yet":                 {func(w *watcher, _ *store) error { w.created(pod("10")); return nil }, 1},
		"a list from before":            {func(w *watcher, s *store) error { w.created(pod("10")); return s.Replace(nil, "9") }, 1},
		"a list from after its removal": {func(w *watcher, s *store) error { w.created(pod("10")); return s.Replace(nil, "100") }, 0},
		"the report comes second":       {func(w *watcher, s *store) error { w.created(pod("10")); return s.Add(pod("10")) }, 1},
		"the report comes first":        {func(w *watcher, s *store) error { defer w.created(pod("10")); return s.Add(pod("10")) }, 1},
		"removal comes second":          {func(w *watcher, s *store) error { w.created(pod("10")); return s.Delete(pod("12")) }, 0},
		"removal comes first":           {func(w *watcher, s *store) error { defer w.created(pod("10")); return s.Delete(pod("12")) }, 0},
	} {
		w := newWatcher(nil, "lab")
		testenv.Must(t, (*store)(w).Replace(nil, "5"))
		w.open = 1
		testenv.Must(t, test.events(w, (*store)(w)))
		if got := w.answer(); len(got) != test.shown {
			t.Errorf("%s: %d pods are shown, want %d", what, len(got), test.shown)
		}
	}
}
