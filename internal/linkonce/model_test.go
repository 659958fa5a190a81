package linkonce

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// whole decodes the records of the check.
func whole(data []byte) (string, error) {
	if len(data) == 0 {
		return "", errors.New("empty")
	}
	return string(data), nil
}

// settled is the protocol itself.
func settled(ctx context.Context, p *process, record string) (string, bool, error) {
	standing, err := settle(ctx, p.disk(), []byte(record), whole)
	return standing, standing == record, err
}

// keeps fails the test when the check finds that a promise is broken.
func keeps(t *testing.T, s site) *check {
	t.Helper()
	c := &check{site: s}
	if broken, trace := c.run(); broken != "" {
		t.Fatalf("%s:\n\t%s", broken, strings.Join(trace, "\n\t"))
	}
	t.Logf("%d faults: %v", s.faults, c)
	return c
}

// The promises: what stands changes by a crash of the file server at most, and
// once some process believed it, never. All that learn, learn the same, at the
// time of their learning it stands, and it is its owner's alone to own: so
// when a bridge owns, no worker does, and the reverse. If none crashed or gave
// up, one is the owner. Every process comes to an end once the faults do, does
// not give up before its time, and leaves no temporary that it could remove.
//
// A worker and a bridge run the same code; the names are for the reader.
func TestEveryOrderOfCallsAndFaultsKeepsThePromises(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]site{
		"a worker that tries again":                {names: []string{"A"}, faults: 5, mortals: true, times: 2},
		"a worker and its bridge, which try again": {names: []string{"A", "Bridge"}, faults: 3, mortals: true, times: 2},
		"two workers and their bridge":             {names: []string{"A", "B", "Closer"}, faults: 2, times: 1},
	} {
		s.settle, s.crashes, s.forgetful = settled, 1, true
		if testing.Short() {
			s.faults = 1
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keeps(t, s)
		})
	}
}

// What a try knows of earlier ones, settle shows plainly: only a temporary is
// carried over. If it were more, the executions would not be as many.
func TestFewerStatesAreNoFewerExecutions(t *testing.T) {
	t.Parallel()
	s := site{settle: settled, names: []string{"A", "Bridge"}, faults: 2, crashes: 1, mortals: true, times: 2}
	if testing.Short() {
		s.faults = 1
	}
	all := keeps(t, s)
	s.forgetful = true
	if fewer := keeps(t, s); fewer.count != all.count || len(fewer.seen) >= len(all.seen) {
		t.Errorf("%v, and without forgetting %v", fewer, all)
	}
}
