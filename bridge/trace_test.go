package bridge_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/trace"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// traced has every bridge of the site write a trace, in which its policy is
// altered. It returns its path.
func (s *site) traced(dir string, alter func(*plan.Policy)) string {
	path := filepath.Join(dir, "trace")
	s.alter = func(b *bridge.Bridge) {
		p := b.Policy
		alter(&p)
		w, err := trace.Open(path, trace.Header{Build: "test", Policy: p}, b.Log)
		if err != nil {
			s.Fatal(err)
		}
		b.Trace = w.Record
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		s.Cleanup(func() {
			cancel()
			<-done
		})
	}
	return path
}

// busy is some of what may happen at a site, with a restart in the middle.
func (s *site) busy() {
	s.queue.RetryBegun = plan.RetryOnPlatform
	s.start()
	for i, command := range []string{"sleep 3", "exit 3", "sleep 1000", "sleep 100"} {
		s.offer(bundleID(i), command)
	}
	s.phase(5*time.Second, bundleID(2), plan.Running)
	s.phase(5*time.Second, bundleID(3), plan.Running)
	s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: bundleID(2)})
	s.slurm.change(func() {
		for _, j := range s.slurm.jobs {
			if j.Name == string(s.rows()[bundleID(3)].SubmissionName) {
				j.State = sbatch.StateNodeFail
			}
		}
	})
	s.result(time.Minute, bundleID(2))
	time.Sleep(5 * time.Second)
	s.stop()
	time.Sleep(time.Minute)
	s.start()
	for i := range 4 {
		s.result(5*time.Minute, bundleID(i))
	}
	time.Sleep(2 * time.Hour)
	s.stop()
}

func TestTraceOfARunIsDecidedAgainAsItWas(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(*plan.Policy){
		"the same policy": func(*plan.Policy) {},
		"another policy":  func(p *plan.Policy) { p.KeepAfterAck = time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var path string
			atSite(t, func(s *site) {
				path = s.traced(dir, alter)
				s.busy()
			})
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			sum, err := trace.Replay(f, "", func(d trace.Decision) error {
				if name != "the same policy" {
					return nil
				}
				for _, f := range append(d.Different, d.Discontinuous...) {
					t.Errorf("line %d, %s: %s was %s, is %s", d.Line, d.Row.Bundle, f.Field, f.Was, f.Is)
				}
				return nil
			})
			if err != nil || sum.Rows != 4 || sum.Decisions < 40 || sum.Lost+sum.Torn != 0 {
				t.Errorf("%+v, %v", sum, err)
			}
			if (sum.Different == 0) != (name == "the same policy") {
				t.Errorf("%d decisions of %d come out differently", sum.Different, sum.Decisions)
			}
		})
	}
}
