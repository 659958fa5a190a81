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

// Tidy ends the tokens of pilots that have ended, removes pods that ended an hour ago, and creates Secrets that are
// missing. It reads the last answer of Pilots. Without Credentials it does nothing.
func (b *Backend) Tidy(ctx context.Context) error {
	if b.Credentials == nil {
		return nil
	}
	pods := b.shown
	return errors.Join(
		b.Credentials.Settle(ctx, tokenHolders(pods)),
		b.equipPending(ctx, pods),
		b.removeEnded(ctx, pods),
	)
}

// tokenHolders returns the pilots of pods; those that may still use their token count as active. A worker that is being
// ended gives its runs back with it.
func tokenHolders(pods []corev1.Pod) []pilot.Pilot {
	var pilots []pilot.Pilot
	for i := range pods {
		p := pilot.Pilot{Name: pods[i].Name, Phase: pilot.Active}
		if finished(&pods[i]) {
			p.Phase = pilot.Ended
		}
		pilots = append(pilots, p)
	}
	return pilots
}

// equipPending creates the Secrets of pending pods that may have none, because creating it failed or the manager was
// killed before. The backend may not look for Secrets: the answer AlreadyExists tells.
func (b *Backend) equipPending(ctx context.Context, pods []corev1.Pod) error {
	var failed error
	known := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		known[pod.Name] = true
		if b.equipped[pod.Name] || pilotOf(pod).Phase != pilot.Pending {
			continue
		}
		login, kept := b.logins[pod.Name]
		var err error
		if !kept {
			login, err = b.Credentials.Issue(ctx, pod.Name)
		}
		if err == nil {
			err = b.equip(ctx, pod, login)
		}
		failed = errors.Join(failed, err)
	}
	maps.DeleteFunc(b.equipped, func(name string, _ bool) bool { return !known[name] })
	maps.DeleteFunc(b.logins, func(name string, _ pilot.Credential) bool { return !known[name] })
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
