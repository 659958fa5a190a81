package bridge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// standalone makes the site's bridge a stand-alone worker, and returns the channel that makes it
// give its runs back and end.
func (s *site) standalone(change func(w *bridge.Standalone)) (giveBack chan struct{}) {
	giveBack = make(chan struct{})
	s.queue.WorkerID, s.queue.Tag, s.queue.Default = "lab(7)", "", true
	s.alter = func(b *bridge.Bridge) {
		b.Standalone = &bridge.Standalone{Local: true, Remote: "lab-w", GiveBack: giveBack, Patience: 24 * time.Second}
		if change != nil {
			change(b.Standalone)
		}
	}
	return giveBack
}

// last is the newest check-in.
func (s *site) last() codalab.CheckIn {
	var in codalab.CheckIn
	s.server.change(func() { in = s.server.last })
	return in
}

// run is the newest report of a bundle.
func (s *site) run(bundle string) codalab.RunReport {
	var run codalab.RunReport
	s.server.change(func() { run = s.server.runs[bundle] })
	return run
}

// The runs go back to the server, which may give them to another worker at once.
func TestEndingWorkerGivesItsRunsBack(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		giveBack := s.standalone(nil)
		bundle := s.startWith("sleep 1000", plan.Running)
		close(giveBack)
		s.within(10*time.Second, "the worker ends", func() bool { return s.last().IsTerminating })
		s.offer(bundleID(2), "true") // the server sent it before it knew
		taken := false
		s.within(20*time.Second, "the run was given back", func() bool {
			_, ok := s.rows()[bundleID(2)]
			taken = taken || ok
			return s.run(bundle).State == codalab.StateStaged
		})
		// The worker may end before it deletes the row.
		s.within(10*time.Second, "its row is done", func() bool {
			row, ok := s.rows()[bundle]
			return !ok || row.Phase == plan.Done
		})
		s.stopsItself()
		if taken {
			t.Error("a worker that ends has taken a run")
		}
	})
}

// Without results nobody has a use for the run's end, so a worker waits for results that are nearly collected.
func TestEndingWorkerCollectsResultsOfEndedCommands(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		giveBack := s.standalone(nil)
		bundle := s.startWith("sleep 5", plan.Running)
		s.within(10*time.Second, "the command has ended", func() bool { return s.rows()[bundle].Phase != plan.Running })
		close(giveBack)
		if run := s.result(10*time.Second, bundle); run.State != codalab.StateFinalizing || run.FailureMessage != nil {
			t.Errorf("the run ended with %+v", run)
		}
	})
}

func TestWorkerEndsWithoutAnAnswerOfTheServer(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		giveBack := s.standalone(nil)
		s.startWith("sleep 1000", plan.Running)
		s.server.setDown(true)
		close(giveBack)
		began := time.Now()
		s.stopsItself()
		if took := time.Since(began); took > 29*time.Second {
			t.Errorf("it ended after %s, later than Slurm's KillWait", took)
		}
	})
}

// stopsItself waits until Run has returned.
func (s *site) stopsItself() {
	s.Helper()
	s.within(2*time.Minute, "the worker has ended", func() bool {
		select {
		case err := <-s.ended:
			s.ended <- err
			return true
		default:
			return false
		}
	})
}

func TestWorkerOffersItsHostAndCountsItsRuns(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.MostRuns, w.Preemptible = 2, true })
		one := s.startWith("sleep 100", plan.Running)
		s.within(time.Minute, "the server knows that one run is left", func() bool { return s.last().ExitAfterNumRuns == 1 })
		in := s.last()
		if !in.Preemptible || in.TagExclusive || in.Tag != "" {
			t.Errorf("the worker describes itself as %+v", in)
		}
		if got := s.run(one).Remote; got != "lab-w" {
			t.Errorf("remote %q", got)
		}
		s.offer(bundleID(2), "sleep 100")
		s.offer(bundleID(3), "sleep 100")
		s.phase(10*time.Second, bundleID(2), plan.Running)
		if _, ok := s.rows()[bundleID(3)]; ok {
			t.Error("the worker takes a third run")
		}
		s.stopsItself()
		if run := s.result(time.Second, bundleID(2)); run.FailureMessage != nil {
			t.Errorf("the last run ended with %q", *run.FailureMessage)
		}
	})
}

func TestWorkerTakesNoRunThatAsksForMoreTimeThanIsLeft(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.Until = time.Now().Add(10 * time.Minute) })
		ask := func(m *codalab.Message) {
			m.Bundle.Metadata["request_time"] = "9m30s"
			m.Resources.Time = 570
		}
		s.start()
		s.offerWith(bundleID(1), "true", ask)
		time.Sleep(5 * time.Second)
		if rows := s.rows(); len(rows) > 0 {
			t.Errorf("taken: %v", rows)
		}
		s.offer(bundleID(2), "true") // others are taken
		s.result(10*time.Second, bundleID(2))
	})
}

func TestWorkerGivesItsRunsBackBeforeItsTimeIsOver(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		var until time.Time
		s.standalone(func(w *bridge.Standalone) { until = time.Now().Add(10 * time.Minute); w.Until = until })
		bundle := s.startWith("sleep 1000", plan.Running)
		if left := s.last().SecondsLeft; left < 530 || left > 540 {
			t.Errorf("the server is told of %d s", left)
		}
		time.Sleep(8 * time.Minute)
		s.stopsItself()
		if !time.Now().Before(until) || s.run(bundle).State != codalab.StateStaged {
			t.Errorf("it ended at %s of %s, and the run is %s", time.Now(), until, s.run(bundle).State)
		}
	})
}

func TestIdleWorkerEnds(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.ExitWhenIdle, w.IdleFor = true, time.Minute })
		began := time.Now()
		s.startWith("sleep 30", plan.Running)
		s.stopsItself()
		if took := time.Since(began); took < 85*time.Second {
			t.Errorf("it ended after %s: before it was idle for a minute", took)
		}
		if in := s.last(); !in.IsTerminating {
			t.Errorf("the server is not told: %+v", in)
		}
	})
}

// It may hold a Slurm job.
func TestIdleWorkerThatTheServerNeverAnswersEnds(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.ExitWhenIdle, w.IdleFor = true, time.Minute })
		s.server.setDown(true)
		s.ends = bridge.ErrLost
		s.start()
		time.Sleep(4 * time.Minute)
		s.stopsItself()
	})
}

// Nobody can repair its login, and its machine may cost money. A login that may be repaired is tried on.
func TestWorkerThatTheServerDeniesForLongEnds(t *testing.T) {
	t.Parallel()
	for _, bound := range []time.Duration{10 * time.Minute, 0} {
		atSite(t, func(s *site) {
			s.standalone(func(w *bridge.Standalone) { w.DeniedFor = bound })
			s.startWith("sleep 100000", plan.Running)
			deny := func(denies bool) { s.server.change(func() { s.server.denies = denies }) }
			deny(true)
			time.Sleep(9 * time.Minute)
			deny(false)
			time.Sleep(time.Minute)
			deny(true)
			time.Sleep(9 * time.Minute)
			select {
			case err := <-s.ended:
				t.Fatalf("it has ended: %v", err)
			default:
			}
			if bound > 0 {
				s.ends = errDenied
				s.stopsItself()
				return
			}
			time.Sleep(time.Hour)
			deny(false)
			time.Sleep(time.Minute)
			if run := s.run(bundleID(1)); run.State != codalab.StateRunning {
				t.Errorf("the run is %s", run.State)
			}
		})
	}
}

// The batch system may start a worker's job again while the first program lives, on a node that was cut off. Two
// programs must not go on with the same run.
func TestReplacedWorkerStopsItsRunsAndEnds(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{"a command that runs": "sleep 100000", "results that are collected": "sleep 5"} {
		atSite(t, func(s *site) {
			s.standalone(func(w *bridge.Standalone) { w.Preemptible = true })
			s.startWith(command, plan.Running)
			if command == "sleep 5" {
				s.within(time.Minute, "the command has ended", func() bool { return s.rows()[bundleID(1)].Phase != plan.Running })
			}
			s.server.change(func() { s.server.replaced = true })
			s.ends = bridge.ErrReplaced
			began := time.Now()
			s.stopsItself()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s: it ends after %s", name, took)
			}
			s.slurm.change(func() {
				for _, j := range s.slurm.jobs {
					if !j.State.Ended() {
						t.Errorf("%s: the run goes on: %+v", name, j)
					}
				}
			})
		})
	}
}

func TestWorkerThatIsReplacedBeforeItsFirstCheckInEnds(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(nil)
		s.server.replaced, s.ends = true, bridge.ErrReplaced
		s.start()
		s.stopsItself()
	})
}

// It counts only the time in which the server could have given it runs.
func TestOutageIsNoIdleTime(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.ExitWhenIdle, w.IdleFor = true, 10*time.Minute })
		s.start()
		time.Sleep(9 * time.Minute)
		s.server.setDown(true)
		time.Sleep(3 * time.Minute)
		s.server.setDown(false)
		time.Sleep(time.Minute)
		bundle := bundleID(1)
		s.offer(bundle, "true")
		s.result(time.Minute, bundle)
	})
}

// A worker with little time at all uses most of it.
func TestWorkerOfAMinuteTakesRuns(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.Until = time.Now().Add(40 * time.Second) })
		s.startWith("sleep 5", plan.Running)
		s.result(10*time.Second, bundleID(1))
		s.stopsItself()
	})
}

// Its jobs are Slurm's, as a bridge's are, and so are its words.
func TestWorkerWithSlurmSpeaksOfSlurm(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(func(w *bridge.Standalone) { w.Local = false })
		s.slurm.held = true
		bundle := s.startWith("true", plan.Queued)
		s.within(20*time.Second, "why it waits", func() bool { return strings.Contains(s.run(bundle).RunStatus, "Slurm job") })
		if run := s.run(bundle); run.JobHandle == "" {
			t.Errorf("the job has no name: %+v", run)
		}
	})
}

// ports answers on a port of every container.
type ports struct{ dialed chan spool.Container }

func (p ports) Dial(_ context.Context, at spool.Container, port int) (io.ReadWriteCloser, error) {
	if port != 80 {
		return nil, errors.New("connection refused")
	}
	p.dialed <- at
	here, there := net.Pipe()
	go func() {
		said := make([]byte, 100)
		n, _ := there.Read(said)
		_, _ = io.WriteString(there, "heard "+string(said[:n]))
		_ = there.Close()
	}()
	return here, nil
}

func TestNetcatReachesARunOfTheWorkersOwnHost(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.standalone(nil)
		p := ports{make(chan spool.Container, 9)}
		alter := s.alter
		s.alter = func(b *bridge.Bridge) { alter(b); b.Ports = p }
		bundle := s.startWith("sleep 100", plan.Running)
		row := s.rows()[bundle]
		attempt := s.shared.Attempt(bundle, row.OnDisk)
		want := spool.Container{Runtime: "builtin", PID: 7, Started: 8}
		if err := attempt.WriteStatus(spool.Status{Token: row.Begun.Token, Stage: spool.StageRunning, Container: want}); err != nil {
			t.Fatal(err)
		}
		ask := func(socket int64, uuid string, port int) {
			s.server.send(codalab.Message{Type: codalab.MessageNetcat, UUID: uuid, SocketID: socket, Port: port, Message: "hello"})
		}
		reply := func(socket int64) (r codalab.ReadReply, data string) {
			s.within(10*time.Second, "an answer", func() bool {
				known := false
				s.server.change(func() {
					var has bool
					if r, known = s.server.replies[socket]; !known {
						var b []byte
						b, has = s.server.data[socket]
						data, known = string(b), has
					}
				})
				return known
			})
			return r, data
		}
		ask(1, bundle, 80)
		if _, got := reply(1); got != "heard hello" {
			t.Errorf("netcat got %q", got)
		}
		if at := <-p.dialed; at != want {
			t.Errorf("dialed %+v", at)
		}
		ask(2, bundle, 81)
		if r, _ := reply(2); r.ErrorCode != http.StatusBadRequest || !strings.Contains(r.ErrorMessage, "Port 81") {
			t.Errorf("a closed port: %+v", r)
		}
		ask(3, bundleID(9), 80)
		if r, _ := reply(3); r.ErrorCode != http.StatusBadRequest || r.ErrorMessage != "The bundle does not run." {
			t.Errorf("an unknown bundle: %+v", r)
		}
	})
}
