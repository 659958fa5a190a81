package kubernetes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

func TestFollowedLogHasEachLineOnceAfterLostConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "tick")
	name := start(t, b)
	var followed testenv.Output
	done := make(chan error, 1)
	go func() { done <- s.backend("lab", "").WriteLog(t.Context(), &followed, pilot.Pilot{Name: name}, true) }()
	for _, line := range []string{"tick 10\n", "tick 80\n"} {
		testenv.Await(t, "the log has "+line, func() bool { return strings.Contains(followed.String(), line) })
		s.proxy.cutStreams()
	}
	testenv.Await(t, "the log goes on", func() bool { return strings.Contains(followed.String(), "tick 160\n") })
	s.finish(name)
	testenv.Must(t, <-done)
	if n := s.proxy.count("GET pods/log"); n < 3 {
		t.Errorf("the log was read %d times: no connection was lost", n)
	}
	whole := logOf(t, b, name)
	if followed.String() != whole {
		t.Errorf("followed:\n%s\nthe log is:\n%s", followed.String(), whole)
	}
	for i := range 160 {
		if n := strings.Count(whole, fmt.Sprintf("tick %d\n", i)); n != 1 {
			t.Errorf("tick %d is there %d times", i, n)
		}
	}
}

func TestPilotThatPrintedNothingHasNoLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "silent")
	selector := b.Settings.NodeSelector
	b.Settings.NodeSelector = map[string]string{"zone": "moon"}
	pending := start(t, b)
	b.Settings.NodeSelector = selector
	silent := start(t, b)
	awaitPhase(t, b, silent, pilot.Active)
	for _, name := range []string{pending, silent} {
		if err := b.WriteLog(t.Context(), &testenv.Output{}, pilot.Pilot{Name: name}, false); !errors.Is(err, pilot.ErrNoLog) {
			t.Errorf("%s: %v", name, err)
		}
	}
	done := make(chan error, 1)
	for _, name := range []string{pending, silent} {
		var followed testenv.Output
		go func() { done <- s.backend("lab", "").WriteLog(t.Context(), &followed, pilot.Pilot{Name: name}, true) }()
		testenv.Must(t, b.Stop(t.Context(), pilot.Pilot{Name: name}))
		if err := <-done; !errors.Is(err, pilot.ErrNoLog) {
			t.Errorf("%s, followed: %v, %q", name, err, followed.String())
		}
	}
	logged, err := b.Logged(t.Context())
	testenv.Must(t, err)
	for _, p := range logged {
		if p.Name == pending {
			t.Errorf("the pending pilot is among those with a log")
		}
	}
}
