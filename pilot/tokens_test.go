package pilot_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// tokens are the worker tokens of a site's server.
type tokens struct {
	none          bool          // the server has no worker tokens
	issueErr, err error         // of the next calls
	life          time.Duration // the backend's TokenLife
	lives         []time.Duration
	passed        []string // the tokens that Start has got
	ended         []string // worker ids
}

func (s *site) TokenLife() time.Duration { return s.tokens.life }

func (s *site) WorkerToken(_ context.Context, workerID string, life time.Duration) (string, error) {
	if s.tokens.none {
		return "", errors.ErrUnsupported
	}
	s.tokens.lives = append(s.tokens.lives, life)
	return "token of " + workerID, s.tokens.issueErr
}

func (s *site) EndWorkerTokens(_ context.Context, workerID string) error {
	switch {
	case s.tokens.none:
		return errors.ErrUnsupported
	case s.tokens.err == nil:
		s.tokens.ended = append(s.tokens.ended, workerID)
	}
	return s.tokens.err
}

// newTokenSite returns a site whose pilots get tokens for a day.
func newTokenSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.tokens.life = 24 * time.Hour
	return s
}

// endsTokens makes a pass, which must end the tokens of these workers.
func (s *site) endsTokens(want ...string) {
	s.t.Helper()
	s.tokens.ended = nil
	s.pass(time.Minute, 0)
	slices.Sort(s.tokens.ended)
	if diff := cmp.Diff(want, s.tokens.ended); diff != "" {
		s.t.Error(diff)
	}
}

func TestEachPilotStartsWithATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *site)
		want   []string
		lives  []time.Duration
	}{
		"tokens": {
			func(*site) {},
			[]string{"token of host-ann-worker-00000000000000000000000000000000", "token of host-ann-worker-00000000000000000000000000000001"},
			[]time.Duration{24 * time.Hour, 24 * time.Hour},
		},
		"the server has none":                  {func(s *site) { s.tokens.none = true }, []string{"", ""}, nil},
		"the pilots of this backend take none": {func(s *site) { s.tokens.life = 0 }, []string{"", ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTokenSite(t)
			test.change(s)
			s.stage(2, nil)
			s.pass(0, 2)
			if diff := cmp.Diff(test.want, s.tokens.passed) + cmp.Diff(test.lives, s.tokens.lives); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A password must not take the place of a token only because the server does not answer.
func TestNoPilotStartsWhileTheServerGivesNoToken(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	s.stage(1, nil)
	s.tokens.issueErr = errors.New("no answer")
	s.pass(0, 0)
	s.logged("cannot start a worker", 1)
	s.tokens.issueErr = nil
	s.pass(time.Minute, 1)
}

// A server may be replaced by one without tokens while a manager runs.
func TestManagerEndsWhenItsPilotsHaveNoLogin(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	s.stage(1, nil)
	s.pass(0, 1)
	s.stage(2, nil)
	s.now = s.now.Add(time.Minute)
	s.tokens.none, s.startErr = true, fmt.Errorf("%w: name a secret", pilot.ErrNoLogin)
	if err := s.Run(t.Context()); !errors.Is(err, pilot.ErrNoLogin) || len(s.pilots) != 1 {
		t.Errorf("the manager ends with %v and %d pilots", err, len(s.pilots))
	}
}

// doubt is an error of a start that may have started the pilot.
type doubt struct{ uncertain bool }

func (doubt) Error() string     { return "the answer is lost" }
func (d doubt) Uncertain() bool { return d.uncertain }

func TestTokenEndsAtOnceIfTheStartCertainlyFailed(t *testing.T) {
	t.Parallel()
	const worker = "host-ann-worker-00000000000000000000000000000000"
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"the start is refused": {errors.New("refused"), []string{worker}},
		"the error says so":    {doubt{false}, []string{worker}},
		"the answer is lost":   {doubt{true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTokenSite(t)
			s.stage(1, nil)
			s.startErr = test.err
			s.pass(0, 1)
			if diff := cmp.Diff(test.want, s.tokens.ended); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("once the server answers", func(t *testing.T) {
		t.Parallel()
		s := newTokenSite(t)
		s.stage(1, nil)
		s.startErr, s.tokens.err = errors.New("refused"), errors.New("no answer")
		s.pass(0, 1)
		s.stage(0, nil)
		s.endsTokens()
		s.tokens.err = nil
		s.endsTokens(worker)
		s.endsTokens()
	})
	t.Run("the manager ends in a start", func(t *testing.T) {
		t.Parallel()
		s := newTokenSite(t)
		s.stage(1, nil)
		ctx, stop := context.WithCancel(t.Context())
		s.startErr = context.Canceled
		s.beforeStart = stop
		if err := s.Pass(ctx); !errors.Is(err, context.Canceled) || len(s.tokens.ended) > 0 {
			t.Errorf("%v; ended are %q", err, s.tokens.ended)
		}
	})
}

func TestTokensEndWithTheirPilots(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	shows := func(pilots ...pilot.Pilot) { s.pilots = pilots }
	p := func(name string, phase pilot.Phase) pilot.Pilot { return pilot.Pilot{Name: name, Phase: phase} }
	leaving := p("b", pilot.Ended)
	leaving.Leaving = true
	shows(p("a", pilot.Pending), p("b", pilot.Active), p("c", pilot.Active))
	s.endsTokens()
	shows(p("a", pilot.Active), leaving)
	s.endsTokens("host-c") // it has vanished
	shows(p("a", pilot.Lost), p("b", pilot.Ended))
	s.endsTokens("host-b")
	s.endsTokens()
	shows(p("a", pilot.Ended))
	s.tokens.err = errors.New("no answer")
	before := s.tidied
	s.endsTokens()
	s.logged("the remains of ended workers were not all removed", 1)
	if s.tidied != before {
		t.Error("the backend removes a pilot's remains while its token is valid")
	}
	s.tokens.err = nil
	s.endsTokens("host-a")
	shows()
	s.endsTokens()
	shows(p("d", pilot.Ended)) // it ended while no manager was there
	s.endsTokens("host-d")
	shows(p("e", pilot.Ended))
	s.tokens.none = true
	s.endsTokens()
}

// Nothing but the manager knows of a pilot whose start was in doubt, or that has ended before the first look.
func TestTokenOfAPilotThatIsNeverShownEnds(t *testing.T) {
	t.Parallel()
	const worker = "host-ann-worker-00000000000000000000000000000000"
	for name, err := range map[string]error{"its start was in doubt": doubt{true}, "it has ended before the first look": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTokenSite(t)
			s.stage(1, nil)
			s.startErr = err
			s.pass(0, 1)
			s.stage(0, nil)
			s.pilots = nil
			for range 10 {
				s.endsTokens() // it may still come
			}
			s.now = s.now.Add(2 * time.Minute)
			s.endsTokens(worker)
			s.endsTokens()
		})
	}
	t.Run("unless it comes late", func(t *testing.T) {
		t.Parallel()
		s := newTokenSite(t)
		s.stage(1, nil)
		s.startErr = doubt{true}
		name := s.NewName()
		s.pass(0, 1)
		s.stage(0, nil)
		for range 5 {
			s.endsTokens()
		}
		s.pilots = []pilot.Pilot{{Name: name, Phase: pilot.Active}}
		for range 20 {
			s.endsTokens()
		}
		s.pilots = nil
		s.endsTokens(worker)
	})
}
