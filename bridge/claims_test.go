package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/batch"
)

// starts is a server that takes claims, a second each request, and lists the requests.
type starts struct {
	BundleService

	refuse error           // of requests for several claims
	lost   map[string]bool // bundles that it has taken from the worker
	status map[string]int  // of refused bundles

	mu       sync.Mutex
	single   int
	together []int // the claims of each request for several
	atOnce   int   // requests under way
	most     int
}

func (s *starts) begin(f func()) (end func()) {
	s.mu.Lock()
	f()
	s.atOnce++
	s.most = max(s.most, s.atOnce)
	s.mu.Unlock()
	time.Sleep(time.Second)
	return func() {
		s.mu.Lock()
		s.atOnce--
		s.mu.Unlock()
	}
}

func (s *starts) StartBundle(_ context.Context, _, bundle string, _ codalab.StartBundle) (bool, error) {
	defer s.begin(func() { s.single++ })()
	if status := s.status[bundle]; status != 0 {
		return false, &codalab.Error{Status: status}
	}
	return !s.lost[bundle], nil
}

func (s *starts) StartBundles(_ context.Context, _ string, in []codalab.BundleStart) (answers []codalab.StartedBundle, err error) {
	defer s.begin(func() { s.together = append(s.together, len(in)) })()
	if s.refuse != nil {
		return nil, s.refuse
	}
	for _, one := range in {
		status := s.status[one.UUID]
		answers = append(answers, codalab.StartedBundle{UUID: one.UUID, Started: !s.lost[one.UUID] && status == 0, Status: status})
	}
	return answers, nil
}

// alone hides that a server takes several claims in one request.
type alone struct{ BundleService }

// claimAll claims bundles at the same time, and returns the outcomes.
func claimAll(t *testing.T, s BundleService, n int) (c *claims, outcomes []string) {
	t.Helper()
	c = newClaims(s, time.Now)
	outcomes = make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			accepted, err := c.start(t.Context(), "w", fmt.Sprint("owner", i%3), codalab.BundleStart{UUID: fmt.Sprint(i)})
			if outcomes[i] = fmt.Sprint(accepted); err != nil {
				outcomes[i] = err.Error()
			}
			if codalab.IsStatus(err, http.StatusNotFound) {
				outcomes[i] = "gone"
			}
		})
	}
	all.Wait()
	return c, outcomes
}

func TestClaimsThatWaitGoInOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{lost: map[string]bool{"7": true}, status: map[string]int{"8": 404}}
		_, outcomes := claimAll(t, s, 1500)
		for i, got := range outcomes {
			want := map[int]string{7: "false", 8: "gone"}[i]
			if want == "" {
				want = "true"
			}
			if got != want {
				t.Errorf("%d: %s, want %s", i, got, want)
			}
		}
		if requests := s.single + len(s.together); requests > 4 || s.most != 1 || slices.Max(s.together) > codalab.MostStarts {
			t.Errorf("%d single requests and %v, %d at once", s.single, s.together, s.most)
		}
	})
}

func TestServerWithoutRequestsForSeveralClaimsGetsOneForEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, s := range map[string]*starts{"hidden": {}, "unknown": {refuse: fmt.Errorf("claim: %w", errors.ErrUnsupported)}} {
			service := BundleService(s)
			if s.refuse == nil {
				service = alone{s}
			}
			c, outcomes := claimAll(t, service, 100)
			if slices.ContainsFunc(outcomes, func(o string) bool { return o != "true" }) {
				t.Errorf("%s: %v", name, outcomes)
			}
			if s.single != 100 || s.most < claimedAtOnce/2 || s.most > claimedAtOnce || len(s.together) > 1 {
				t.Errorf("%s: %d single requests, %d at once, and %v", name, s.single, s.most, s.together)
			}
			if s.refuse == nil {
				continue
			}
			s.refuse = nil // it is updated
			time.Sleep(batch.AloneFor)
			if c.several.Alone() {
				t.Error("it is not asked again")
			}
		}
	})
}

// Claims of several workers come before and after the server's refusal, and while its request is under way.
func TestServerWithoutRequestsForSeveralClaimsIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{refuse: errors.ErrUnsupported}
		c := newClaims(s, time.Now)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				accepted, err := c.start(t.Context(), fmt.Sprint("w", i%3), "o", codalab.BundleStart{UUID: fmt.Sprint(i)})
				if !accepted || err != nil {
					t.Errorf("%d: %t, %v", i, accepted, err)
				}
			})
		}
		all.Wait()
		if len(s.together) != 1 || s.single != 300 {
			t.Errorf("%d single requests and %v", s.single, s.together)
		}
	})
}

// The fault of one claim must not be the others'.
func TestRefusedRequestForSeveralClaimsRefusesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{refuse: &codalab.Error{Status: http.StatusBadRequest}}
		c, outcomes := claimAll(t, s, 10)
		if slices.ContainsFunc(outcomes, func(o string) bool { return o != "true" }) || s.single != 10 {
			t.Errorf("%v, %d single requests", outcomes, s.single)
		}
		if c.several.Alone() {
			t.Error("later claims are single")
		}
	})
}

func TestLostAnswerToSeveralClaimsFailsEachOfThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{refuse: &codalab.Error{Message: "connection reset"}}
		_, outcomes := claimAll(t, s, 10)
		failed := 0
		for _, o := range outcomes {
			if o != "true" {
				failed++
			}
		}
		if s.single+failed != 10 || failed < 5 {
			t.Errorf("%v, %d single requests", outcomes, s.single)
		}
	})
}

func TestClaimThatIsGivenUpIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &starts{}
		c := newClaims(s, time.Now)
		var all sync.WaitGroup
		claim := func(ctx context.Context, bundle string) {
			all.Go(func() { _, _ = c.start(ctx, "w", "ann", codalab.BundleStart{UUID: bundle}) })
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		claim(t.Context(), "1")
		claim(ctx, "2")
		claim(t.Context(), "3")
		claim(t.Context(), "4")
		claim(t.Context(), "4") // of another attempt
		cancel()
		all.Wait()
		if s.single != 2 || !slices.Equal(s.together, []int{2}) {
			t.Errorf("%d single requests and %v, want 2 and one for two claims", s.single, s.together)
		}
	})
}
