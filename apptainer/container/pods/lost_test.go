package pods

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
)

// A busy node may take a minute to end a pod that has never started. The run ends with the pod, and not minutes later.
func TestRunOfALostNodeEndsWhenTheNodeAnswersAfterAll(t *testing.T) {
	t.Parallel()
	ended := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	alive := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	const later, silence = 20 * time.Second, 2 * time.Minute
	for name, test := range map[string]struct {
		states []*corev1.Pod // each one later
		want   time.Duration
	}{
		"the pod is gone":        {[]*corev1.Pod{nil}, later},
		"the pod has ended":      {[]*corev1.Pod{ended}, later},
		"the pod is still alive": {[]*corev1.Pod{alive, alive, nil}, 3 * later},
		"nothing is heard":       {nil, silence + 2*enter.BeatPause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := filepath.Join(t.TempDir(), "report")
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // the run is killed
				p := &podRun{Runtime: Runtime{Silence: silence}, pod: alive, report: report, stopBeats: func() {}, removed: true}
				seen := make(chan *corev1.Pod)
				go func() {
					for _, pod := range test.states {
						time.Sleep(later)
						seen <- pod
					}
				}()
				began := time.Now()
				_, err := p.loseNode(ctx, seen)
				if took := time.Since(began); took != test.want || !errors.Is(err, context.Canceled) {
					t.Errorf("it ended after %s, want %s: %v", took, test.want, err)
				}
			})
		})
	}
}
