package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestFewCheckInsWaitAtATime(t *testing.T) {
	t.Parallel()
	for _, concurrent := range []bool{true, false} {
		t.Run(map[bool]string{true: "the newer ends the older", false: "each is held to its end"}[concurrent], func(t *testing.T) {
			t.Parallel()
			atSite(t, func(s *site) {
				s.server.concurrent = concurrent
				s.start()
				for i := range 10 {
					s.offer(bundleID(i), "sleep 1.5")
				}
				for i := range 10 {
					s.result(2*time.Minute, bundleID(i))
				}
				s.stop()
				if want := map[bool]int{true: 2, false: 4}[concurrent]; s.server.most != want {
					s.Errorf("%d check-ins at once, want %d", s.server.most, want)
				}
			})
		})
	}
}

// TestReportWhoseCheckInFailedIsSentAgain: another check-in is held meanwhile,
// and would be for long.
func TestReportWhoseCheckInFailedIsSentAgain(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.server.hold = time.Hour
		bundle := s.startWith("sleep 4", plan.Running)
		time.Sleep(2 * time.Second)
		s.server.change(func() { s.server.failures = 2 })
		s.result(10*time.Second, bundle)
	})
}

// stuckSlurm gives no answer when it is asked for its nodes.
type stuckSlurm struct{ sbatch.Scheduler }

func (stuckSlurm) Partitions(ctx context.Context) ([]sbatch.Partition, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestBridgeChecksInThoughSlurmDoesNotAnswer(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.alter = func(b *bridge.Bridge) { b.Scheduler = stuckSlurm{b.Scheduler} }
		s.start()
		time.Sleep(10 * time.Second)
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		if s.server.checkIns == 0 {
			s.Error("no check-in in 10 s")
		}
	})
}

func TestServerThatHoldsNothingIsNotHammered(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.server.hold = 0
		s.start()
		time.Sleep(time.Minute)
		s.stop()
		if s.server.checkIns > 65 {
			s.Errorf("%d check-ins in a minute", s.server.checkIns)
		}
	})
}

func TestReadIsAnsweredFromTheRunDirectory(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		bundle := bundleID(1)
		s.offer(bundle, "sleep 100")
		info := &codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: 1}
		s.phase(2*time.Second, bundle, plan.Queued)
		s.server.send(codalab.Message{Type: codalab.MessageRead, UUID: bundle, SocketID: 4, ReadArgs: info})
		s.phase(2*time.Second, bundle, plan.Running)
		s.server.send(codalab.Message{Type: codalab.MessageRead, UUID: bundle, SocketID: 1, ReadArgs: info})
		s.server.send(codalab.Message{Type: codalab.MessageRead, UUID: bundleID(2), SocketID: 2, ReadArgs: info})
		s.server.send(codalab.Message{
			Type: codalab.MessageRead, UUID: bundle, SocketID: 3, Path: "stdout", ReadArgs: &codalab.ReadArgs{Type: codalab.ReadFile},
		})
		s.server.send(codalab.Message{Type: codalab.MessageNetcat, UUID: bundle, SocketID: 5})
		s.within(2*time.Second, "all are answered", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			return len(s.server.replies) == 4 && len(s.server.data) == 1
		})
		s.stop()
		if got := s.server.replies[1].TargetInfo; got == nil || len(got.Contents) != 1 || got.Contents[0].Name != "stdout" {
			s.Errorf("description %+v, want the directory with stdout", got)
		}
		if got := s.server.replies[2]; got.ErrorCode != 500 || got.ErrorMessage != "Bundle no longer running" {
			s.Errorf("answer for a bundle that is not here: %+v", got)
		}
		if got := s.server.replies[4]; got.ErrorCode != 404 || !strings.HasSuffix(got.ErrorMessage, "hasn't started running yet, files not available") {
			s.Errorf("answer for a bundle that has not begun: %+v", got)
		}
		// CodaLab's own server would report a 5xx as an internal error.
		if got := s.server.replies[5]; got.ErrorCode != 400 || !strings.Contains(got.ErrorMessage, "netcat") {
			s.Errorf("answer to netcat: %+v", got)
		}
		if got := gunzip(s.T, s.server.data[3]); got != hello(bundle, 1) {
			s.Errorf("stdout %q", got)
		}
	})
}
