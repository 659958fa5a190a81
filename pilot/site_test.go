package pilot_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// site is a server and a batch system with the answers of a test, and a manager between them.
type site struct {
	*pilot.Manager
	t        *testing.T
	now      time.Time
	log      strings.Builder
	staged   []client.BundleInfo
	workers  []codalab.WorkerInfo
	keywords [][]string
	// serverErr and backendErr are the errors of the next calls.
	serverErr, backendErr, startErr error
	tidyErr                         error
	stopped                         []string
	serverBack                      time.Time // the end of serverErr; zero for never
	pilots                          []pilot.Pilot
	othersPending, othersActive     int // the workers of others
	started, looks, tidied          int
	refresh                         time.Duration // the backend's; 0 means 5 s
	tokens                          tokens
	beforeStart, duringLook         func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, now: time.Unix(1_800_000_000, 0)}
	s.Manager = &pilot.Manager{
		Server: s, Backend: s, Shape: pilot.Shape{CPUs: 1, Memory: 2 * gib}, Max: 10, MostFailed: -1, Pause: time.Second,
		Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return s.now },
	}
	return s
}

func (s *site) SearchBundles(_ context.Context, _ string, keywords []string) ([]client.BundleInfo, json.RawMessage, error) {
	s.keywords = append(s.keywords, keywords)
	if !s.serverBack.IsZero() && !s.Now().Before(s.serverBack) {
		s.serverErr = nil
	}
	return s.staged, nil, s.serverErr
}

func (s *site) Workers(context.Context) ([]codalab.WorkerInfo, error) { return s.workers, s.serverErr }

func (s *site) Bundle(_ context.Context, uuid string, _ ...string) (client.BundleInfo, error) {
	return client.BundleInfo{Bundle: codalab.Bundle{UUID: uuid, Metadata: codalab.Metadata{"request_memory": "1g"}}}, nil
}

func (s *site) NewName() string { return fmt.Sprintf("ann-worker-%032x", len(s.pilots)) }

func (s *site) Refresh() time.Duration { return cmp.Or(s.refresh, 5*time.Second) }

func (s *site) Start(_ context.Context, name, token string) (pilot.Pilot, error) {
	s.started++
	if s.beforeStart != nil {
		s.beforeStart()
	}
	s.tokens.passed = append(s.tokens.passed, token)
	p := pilot.Pilot{Name: name, Phase: pilot.Pending, Job: fmt.Sprint(s.started), Since: s.now}
	if s.startErr != nil {
		return pilot.Pilot{}, s.startErr
	}
	s.pilots = append(s.pilots, p)
	return p, nil
}

func (s *site) Pilots(context.Context) ([]pilot.Pilot, error) {
	s.looks++
	if s.duringLook != nil {
		s.duringLook()
	}
	return slices.Clone(s.pilots), s.backendErr
}

func (s *site) Others() (pending, active int) { return s.othersPending, s.othersActive }

func (s *site) Tidy(context.Context, pilot.NewToken) error {
	s.tidied++
	return s.tidyErr
}

// Stop ends a pilot at the next answer.
func (s *site) Stop(_ context.Context, p pilot.Pilot) error {
	for i := range s.pilots {
		if s.pilots[i].Name == p.Name {
			s.pilots[i].Phase = pilot.Ended
			s.stopped = append(s.stopped, p.Name)
		}
	}
	return nil
}

func (s *site) Logged(context.Context) ([]pilot.Pilot, error) { return s.pilots, nil }

func (s *site) WriteLog(_ context.Context, w io.Writer, p pilot.Pilot, _ bool) error {
	_, err := fmt.Fprintf(w, "first line of %[1]s\nlast line of %[1]s\n", p.Name)
	return err
}

// stage makes the server show n staged bundles.
func (s *site) stage(n int, metadata codalab.Metadata) {
	s.staged = nil
	for i := range n {
		m := codalab.Metadata{"request_cpus": 1.0, "request_memory": "2g"}
		for key, value := range metadata {
			m[key] = value
		}
		b := codalab.Bundle{UUID: fmt.Sprintf("0x%032x", i), Type: codalab.TypeRun, State: codalab.StateStaged, Metadata: m}
		s.staged = append(s.staged, client.BundleInfo{Bundle: b})
	}
}

// checkIn makes the server know pilots, with a run each if runs is set.
func (s *site) checkIn(runs bool, pilots ...int) {
	for _, i := range pilots {
		if s.pilots[i].Phase == pilot.Pending {
			s.pilots[i].Phase, s.pilots[i].Since = pilot.Active, s.now
		}
		w := codalab.WorkerInfo{
			WorkerID: pilot.WorkerID(s.pilots[i].Name), CPUs: 1, MemoryBytes: 2 * gib, ExitAfterNumRuns: codalab.UnlimitedRuns,
			CheckInTime: s.now.Unix(),
		}
		if runs {
			w.CPUsInUse, w.RunUUIDs = 1, []string{fmt.Sprintf("0x%032x", 1000+i)}
		}
		s.workers = append(s.workers, w)
	}
}

// pass lets time pass and makes a pass, which must start so many pilots.
func (s *site) pass(after time.Duration, want int) {
	s.t.Helper()
	s.now = s.now.Add(after)
	before := s.started
	if err := s.Pass(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if s.started-before != want {
		s.t.Fatalf("%d were started, want %d; the log: %s", s.started-before, want, s.log.String())
	}
}

func (s *site) logged(text string, times int) {
	s.t.Helper()
	if n := strings.Count(s.log.String(), text); n != times {
		s.t.Errorf("%q is logged %d times, want %d: %s", text, n, times, s.log.String())
	}
}
