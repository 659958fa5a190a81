package pods

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
)

// podRun is one pod with its caller's end of the order.
type podRun struct {
	Runtime
	api    *client
	c      container.Container
	pod    *corev1.Pod // as it was last seen
	order  *enter.OrderFiles
	report string

	onStart func(container.Running)
	began   bool
	removed bool // by this process
	waited  string
	trouble time.Time // the begin of the obstacle
	asked   time.Time // the last question about events
	ended   time.Time // when the report showed the command's end
	// eventText is its answer.
	eventText string
	// stopBeats ends the beats.
	stopBeats context.CancelFunc
}

const (
	// reportPause is the time between two looks at the report until the command begins.
	reportPause = 50 * time.Millisecond
	// quietFor is the time after which a pod without a reason for its waiting is asked for its events, and eventPause the time between two
	// such questions.
	quietFor, eventPause, eventsWithin = 10 * time.Second, 30 * time.Second, 5 * time.Second
	// lostAfter is the time after the end of its grace at which a deleted pod counts as lost with its node.
	lostAfter = 30 * time.Second
	// endPause is the time between two looks at the use, and for the command's end in the report. unseenFor is the time after it without a
	// word of the API server, at which the report is enough.
	endPause, unseenFor = 5 * time.Second, time.Minute
)

// await waits for the pod's end, and removes it.
func (p *podRun) await(ctx context.Context) (container.Exit, error) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	beating, stopBeats := context.WithCancel(working)
	defer stopBeats()
	p.stopBeats = stopBeats
	group.Go(func() { p.beat(beating) })
	seen := make(chan *corev1.Pod)
	group.Go(func() { p.api.follow(working, p.pod.Name, seen) })
	exit, err := p.watch(ctx, seen)
	_ = p.remove(ctx, 0) // the next run tries again
	return exit, err
}

// beat writes beats until ctx ends. If the disk does not take one, the next may be taken.
func (p *podRun) beat(ctx context.Context) {
	tick := time.NewTicker(enter.BeatPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = p.order.Beat()
		}
	}
}

// watch follows the pod to its end.
func (p *podRun) watch(ctx context.Context, seen <-chan *corev1.Pod) (container.Exit, error) {
	tick := time.NewTicker(reportPause)
	defer tick.Stop()
	stop := ctx.Done()
	var kill, lost <-chan time.Time
	for {
		select {
		case now := <-tick.C:
			if p.noteBegin(); !p.began {
				if err := p.checkStart(ctx, now); err != nil {
					return container.Exit{}, err
				}
				continue
			}
			tick.Reset(endPause)
			if used := p.order.Usage(); p.c.OnUsage != nil && used != (container.Usage{}) {
				p.c.OnUsage(used)
			}
			if p.hasLongEnded(now) {
				return p.outcome(ctx, killed())
			}
		case <-stop:
			stop = nil
			_ = p.remove(ctx, p.grace()) // kill tries again
			kill = time.NewTimer(p.grace() + endMargin).C
		case <-kill:
			_ = p.remove(ctx, time.Second) // the beats end, too
			lost = time.NewTimer(lostAfter).C
		case pod := <-seen:
			if pod == nil {
				return p.outcome(ctx, killed())
			}
			if p.pod = pod; hasEnded(pod) {
				return p.outcome(ctx, ofStatus(pod))
			}
			if pod.DeletionGracePeriodSeconds != nil && !p.removed && lost == nil {
				lost = time.NewTimer(time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second + lostAfter).C
			}
		case <-lost:
			return p.loseNode(ctx, seen)
		}
	}
}

// grace is the kubelet's time between TERM and KILL.
func (p *podRun) grace() time.Duration {
	return time.Duration(*p.pod.Spec.TerminationGracePeriodSeconds) * time.Second
}

// noteBegin calls OnStart once, when the report shows that the command has begun.
func (p *podRun) noteBegin() {
	if p.began || !enter.ReadReport(p.report).Began {
		return
	}
	p.began = true
	p.order.Taken()
	if p.onStart != nil {
		p.onStart(container.Running{Name: p.pod.Name})
	}
}

// hasLongEnded reports whether the command has ended some time ago, although the API server does not show it.
func (p *podRun) hasLongEnded(now time.Time) bool {
	if enter.ReadReport(p.report).Code == nil {
		return false
	}
	if p.ended.IsZero() {
		p.ended = now
	}
	return now.Sub(p.ended) > unseenFor
}

// checkStart tells the obstacle to the start, and fails if it stays too long.
func (p *podRun) checkStart(ctx context.Context, now time.Time) error {
	if p.removed {
		return nil
	}
	o := obstacleOf(p.pod, p.Patience)
	if o.text == "" && o.never == nil && p.pod.Spec.NodeName != "" {
		o = p.ofEvents(ctx, now)
	}
	switch {
	case o.never != nil:
		return o.never
	case o.text == "":
		p.trouble = time.Time{}
		p.wait("")
		return nil
	case p.trouble.IsZero():
		p.trouble = now
	case now.Sub(p.trouble) > o.within:
		return &container.HostError{Err: fmt.Errorf("%s, for %s", o.text, o.within), AnyRuntime: true, Doubtful: true}
	}
	p.wait(o.text)
	return nil
}

// ofEvents asks for the events of a pod that has a node and tells no reason why it does not start. Between two questions
// it returns the last answer.
func (p *podRun) ofEvents(ctx context.Context, now time.Time) obstacle {
	if now.Sub(p.pod.CreationTimestamp.Time) > quietFor && now.Sub(p.asked) > eventPause {
		p.asked = now
		p.eventText = ""
		ctx, cancel := context.WithTimeout(ctx, eventsWithin)
		defer cancel()
		if events, err := p.api.events(ctx, p.pod); err == nil { // a site need not allow it
			p.eventText = mountFailure(events)
		}
	}
	if p.eventText == "" {
		return obstacle{}
	}
	return obstacle{text: fmt.Sprintf("node %s cannot set the pod up: %s", p.pod.Spec.NodeName, p.eventText), within: p.Patience}
}

// wait tells the caller's reader why the container does not start; "" means that nothing is in its way.
func (p *podRun) wait(text string) {
	if p.c.OnWait != nil && text != p.waited {
		p.c.OnWait(text)
	}
	p.waited = text
}

// remove deletes the pod. The next run or the end of the caller's own pod removes what it leaves.
func (p *podRun) remove(ctx context.Context, grace time.Duration) error {
	p.removed = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return p.api.remove(ctx, p.pod.Name, grace)
}

// ofStatus returns the end of a pod's first process.
func ofStatus(pod *corev1.Pod) container.Exit {
	if status := statusOf(pod); status != nil && status.State.Terminated != nil {
		return container.ExitOf(int(status.State.Terminated.ExitCode))
	}
	return killed()
}

// outcome returns the end of the command. unreported is the end of its pod, for want of a report.
func (p *podRun) outcome(ctx context.Context, unreported container.Exit) (container.Exit, error) {
	report := enter.ReadReport(p.report)
	p.noteBegin()
	ended := fault(p.pod, p.removed)
	switch {
	case report.Error != "":
		return container.Exit{}, container.NotBegun(report.Err())
	case report.Code != nil && (ended == nil || *report.Code == 0):
		exit := container.ExitOf(*report.Code)
		exit.Usage, exit.OutputError = report.Usage, report.OutputError
		return exit, nil
	case ended != nil && report.Began:
		return container.Exit{}, ended
	case ended != nil:
		return container.Exit{}, &container.HostError{Err: ended, AnyRuntime: true}
	case isOOM(p.pod):
		exit := killed()
		exit.Usage = report.Usage
		exit.Usage.OOMKills, exit.Usage.MemoryPeak = 1, max(exit.Usage.MemoryPeak, p.c.MemoryBytes)
		return exit, nil
	case report.Began:
		return unreported, nil
	case ctx.Err() != nil:
		return container.Exit{}, ctx.Err()
	}
	return container.Exit{}, p.notStarted()
}

// notStarted returns the error for a pod that ended before the command began.
func (p *podRun) notStarted() error {
	message := "it ended without a message"
	if status := statusOf(p.pod); status != nil && status.State.Terminated != nil {
		t := status.State.Terminated
		message = strings.TrimSpace(fmt.Sprintf("%s %s (exit status %d)", t.Reason, t.Message, t.ExitCode))
	}
	return &container.HostError{Err: fmt.Errorf("node %s could not set the container up: %s", p.pod.Spec.NodeName, message), AnyRuntime: true, Doubtful: true}
}

// loseNode ends a run whose node does not answer. The command may still run there, until it misses the beats: so the run
// ends after that, or when the node answers after all and has ended the pod. The end of ctx does not make the wait shorter.
func (p *podRun) loseNode(ctx context.Context, seen <-chan *corev1.Pod) (container.Exit, error) {
	p.stopBeats()
	missed := time.NewTimer(p.Silence + 2*enter.BeatPause)
	defer missed.Stop()
	for waits := true; waits; {
		select {
		case <-missed.C:
			waits = false
		case pod := <-seen:
			if pod == nil {
				return p.outcome(ctx, killed())
			}
			if p.pod = pod; hasEnded(pod) {
				return p.outcome(ctx, ofStatus(pod))
			}
		}
	}
	report := enter.ReadReport(p.report)
	err := fmt.Errorf("node %s is lost: it has not ended the pod %s", p.pod.Spec.NodeName, p.pod.Name)
	switch {
	case report.Code != nil, ctx.Err() != nil:
		return p.outcome(ctx, killed())
	case !report.Began:
		return container.Exit{}, &container.HostError{Err: err, AnyRuntime: true}
	}
	return container.Exit{}, err
}

// isQuota reports whether the server refuses a pod because a quota is used up
// (k8s.io/apiserver: pkg/admission/plugin/resourcequota: "exceeded quota").
func isQuota(err error) bool {
	refused, ok := errors.AsType[*apiError](err)
	return ok && apierrors.IsForbidden(refused.status) && strings.Contains(refused.Error(), "exceeded quota")
}
