package pilot_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// tokens is a server with worker tokens.
type tokens struct {
	none  bool // it has no worker tokens
	err   error
	ended []string
}

func (s *tokens) WorkerToken(_ context.Context, workerID string, _ time.Duration) (string, error) {
	if s.none {
		return "", errors.ErrUnsupported
	}
	return "token of " + workerID, s.err
}

func (s *tokens) EndWorkerTokens(_ context.Context, workerID string) error {
	if s.none {
		return errors.ErrUnsupported
	}
	if s.err == nil {
		s.ended = append(s.ended, workerID)
	}
	return s.err
}

func TestPilotsLogInWithTokensOfTheirOwnWhereTheServerHasThem(t *testing.T) {
	t.Parallel()
	server := &tokens{}
	c := &pilot.Credentials{Tokens: server, User: "ann", Password: "secret"}
	if got, err := c.Issue(t.Context(), "p1"); err != nil || got != (pilot.Credential{Token: "token of host-p1"}) {
		t.Error(got, err)
	}
	server.none = true
	if got, err := c.Issue(t.Context(), "p1"); err != nil || got != (pilot.Credential{User: "ann", Password: "secret"}) {
		t.Error(got, err)
	}
}

func TestTokensEndWithTheirPilots(t *testing.T) {
	t.Parallel()
	server := &tokens{}
	c := &pilot.Credentials{Tokens: server}
	settle := func(want []string, pilots ...pilot.Pilot) {
		t.Helper()
		server.ended = nil
		if err := c.Settle(t.Context(), pilots); (err != nil) != (server.err != nil) {
			t.Fatal(err)
		}
		slices.Sort(server.ended)
		if diff := cmp.Diff(want, server.ended); diff != "" {
			t.Error(diff)
		}
	}
	p := func(name string, phase pilot.Phase) pilot.Pilot { return pilot.Pilot{Name: name, Phase: phase} }
	settle(nil, p("a", pilot.Pending), p("b", pilot.Active), p("c", pilot.Active))
	settle([]string{"host-b", "host-c"}, p("a", pilot.Active), p("b", pilot.Ended)) // c has vanished
	settle(nil, p("a", pilot.Active), p("b", pilot.Ended))
	server.err = errors.New("no answer")
	settle(nil, p("a", pilot.Ended))
	server.err = nil
	settle([]string{"host-a"}, p("a", pilot.Ended))
	settle(nil)
	settle([]string{"host-d"}, p("d", pilot.Ended)) // it ended while no manager was there
	server.none = true
	settle(nil, p("e", pilot.Ended))
}
