package kubernetes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cl-slurm/cl-slurm/pilot"
)

const (
	// logsStay is the time for which an ended pod stays with its log, and mostEnded bounds the number of those.
	logsStay  = time.Hour
	mostEnded = 100
)

// Tidy removes pods that ended an hour ago, and creates Secrets that are missing. It reads the last answer of Pilots.
func (b *Backend) Tidy(ctx context.Context, newToken pilot.NewToken) error {
	return errors.Join(b.equipPending(ctx, b.shown, newToken), b.removeEnded(ctx, b.shown))
}

// equipPending creates the Secrets of pending pods that may have none, because creating it failed or the manager was
// killed before. The backend may not look for Secrets: the answer AlreadyExists tells.
func (b *Backend) equipPending(ctx context.Context, pods []corev1.Pod, newToken pilot.NewToken) error {
	var failed error
	known := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		known[pod.Name] = true
		if b.equipped[pod.Name] || pilotOf(pod).Phase != pilot.Pending {
			continue
		}
		token, kept := b.tokens[pod.Name]
		var err error
		if !kept {
			token, err = newToken(ctx, pod.Name)
		}
		if err == nil {
			err = b.equip(ctx, pod, token)
		}
		failed = errors.Join(failed, err)
	}
	maps.DeleteFunc(b.equipped, func(name string, _ bool) bool { return !known[name] })
	maps.DeleteFunc(b.tokens, func(name, _ string) bool { return !known[name] })
	return failed
}

// removeEnded removes pods that ended more than an hour ago, and the oldest of too many.
func (b *Backend) removeEnded(ctx context.Context, pods []corev1.Pod) error {
	var ended []*corev1.Pod
	for i := range pods {
		if finished(&pods[i]) && pods[i].DeletionTimestamp == nil {
			ended = append(ended, &pods[i])
		}
	}
	slices.SortFunc(ended, func(x, y *corev1.Pod) int { return endedAt(y).Compare(endedAt(x)) })
	var failed error
	for i, pod := range ended {
		if i >= mostEnded || b.Now().Sub(endedAt(pod)) > logsStay {
			failed = errors.Join(failed, b.delete(ctx, pod, 0))
		}
	}
	return failed
}
