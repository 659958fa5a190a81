package pages

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func numbered(n int) []codalab.Bundle {
	bundles := make([]codalab.Bundle, n)
	for i := range bundles {
		bundles[i].UUID = strconv.Itoa(i)
	}
	return bundles
}

func TestRefusalsOfAFormAreSplitABoundedNumberOfTimes(t *testing.T) {
	t.Parallel()
	p, page, calls := &Pages{}, partlyPage{}, 0
	const good = mostOfAForm * 3 / 4 // the other ones come first, and use up the requests
	err := p.each(nil, &page, numbered(mostOfAForm), func(some []codalab.Bundle) error {
		calls++
		if n, _ := strconv.Atoi(some[0].UUID); n < mostOfAForm-good {
			return &codalab.Error{Status: http.StatusForbidden, Message: "no"}
		}
		return nil
	})
	if err != nil || calls > mostCalls+10 || page.Did != good || len(page.Left) != mostOfAForm-good {
		t.Errorf("%d calls acted on %d, left %d: %v", calls, page.Did, len(page.Left), err)
	}
	for _, left := range page.Left {
		if left.Why == "" {
			t.Fatalf("%s is left without a reason", left.UUID)
		}
	}
}

func TestRefusalThatConcernsAllEndsAForm(t *testing.T) {
	t.Parallel()
	v := &visit{ResponseWriter: httptest.NewRecorder(), Request: httptest.NewRequest(http.MethodPost, "/runs/actions", nil)}
	for _, all := range []error{
		&codalab.Error{Status: http.StatusTooManyRequests, Message: "busy"}, &codalab.Error{Status: http.StatusUnauthorized, Message: "who?"},
		&codalab.Error{Status: http.StatusServiceUnavailable, Message: "later"}, errors.New("the network is away"),
	} {
		p := &Pages{config: Config{Log: slog.New(slog.DiscardHandler)}}
		for _, first := range []int{1, 3} { // the first request that fails so
			page, calls := partlyPage{}, 0
			err := p.each(v, &page, numbered(8), func(some []codalab.Bundle) error {
				calls++
				switch {
				case calls >= first:
					return all
				case len(some) > 4:
					return &codalab.Error{Status: http.StatusForbidden, Message: "no"}
				}
				return nil
			})
			if calls != first || (first == 1) != errors.Is(err, all) || (first == 3) != (page.Did == 4 && len(page.Left) == 4) {
				t.Errorf("%v: %d calls acted on %d, left %v: %v", all, calls, page.Did, page.Left, err)
			}
		}
	}
}

func TestUsersComeFirstAndTheRestStaysInOrder(t *testing.T) {
	t.Parallel()
	bundles := numbered(6)
	on := func(child, parent int) {
		bundles[child].Dependencies = append(bundles[child].Dependencies, codalab.Dependency{ParentUUID: strconv.Itoa(parent)})
	}
	on(4, 1)
	on(5, 4)
	on(2, 99)
	on(3, 3) // whatever a server says
	var got []string
	for _, b := range usersFirst(bundles) {
		got = append(got, b.UUID)
	}
	if want := []string{"0", "2", "3", "5", "4", "1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
