package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// tokenSite is a twinSite whose bridge has a program token and no password.
type tokenSite struct {
	twinSite
	data  *store.Store
	user  store.User
	token string // the file
}

func newTokenSite(t *testing.T) tokenSite {
	t.Helper()
	dir := t.TempDir()
	data, user, web := startServer(t, filepath.Join(dir, "server"))
	self, err := os.Executable()
	testenv.Must(t, err)
	s := tokenSite{twinSite{dir, filepath.Join(dir, "bridge.toml"), filepath.Join(dir, "state", "ledger.db")}, data, user, filepath.Join(dir, "token")}
	text := fmt.Sprintf("server = %q\nuser = \"ann\"\ntoken_file = %q\nshared = %q\nledger = %q\nname = \"lab\"\nworker = %q\n[slurm]\nbin = %q\n[queue.cpu]\n[queue.gpu]\n",
		web.URL, s.token, filepath.Join(dir, "shared"), s.ledger, self, writeSlurmCommands(t, t.TempDir()))
	testenv.Must(t, os.WriteFile(s.config, []byte(text), 0o600))
	return s
}

// write makes a token and writes it into the bridge's file.
func (s tokenSite) write(t *testing.T, in codalab.ProgramTokenRequest) (id string) {
	t.Helper()
	token, row, err := server.NewProgramToken(s.user.ID, in, time.Now())
	testenv.Must(t, errors.Join(err, s.data.AddProgramToken(t.Context(), row, 9), os.WriteFile(s.token, []byte(token+"\n"), 0o600)))
	return row.ID
}

// refusals returns the server's refusals of the queues' check-ins, as status shows them.
func (s tokenSite) refusals(t *testing.T) map[string]string {
	t.Helper()
	var got heartbeat.Status
	out, err := exec.Command("cl-bridge", "status", "--json", "--config", s.config).Output()
	testenv.Must(t, errors.Join(wordless(err), json.Unmarshal(out, &got)))
	if !got.Running {
		t.Fatal("the bridge has ended")
	}
	if got.Last == nil || len(got.Last.UnansweredQueues) > 0 {
		return map[string]string{"cpu": "nothing yet"}
	}
	return got.Last.Server
}

func TestBridgeWhoseTokenIsRevokedWaitsAndTakesTheNextOne(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	id := s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}, Days: 1})
	s.start(t)
	var seen map[string]string
	testenv.Await(t, "the server takes the check-ins of both queues", func() bool {
		seen = s.refusals(t)
		all, err := s.data.ProgramTokens(t.Context(), "")
		testenv.Must(t, err)
		return len(seen) == 0 && !all[0].LastUsed.IsZero()
	}, &seen)

	testenv.Must(t, s.data.DeleteProgramToken(t.Context(), "", id))
	testenv.Await(t, "the bridge says that its token has ended", func() bool {
		seen = s.refusals(t)
		return len(seen) == 2
	}, &seen)
	for queue, refusal := range seen {
		if !strings.Contains(refusal, "the token has ended or was revoked") {
			t.Errorf("of queue %s status says %q", queue, refusal)
		}
	}

	s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}})
	testenv.Await(t, "the bridge goes on with the next token", func() bool {
		seen = s.refusals(t)
		return len(seen) == 0
	}, &seen)
}

func TestBridgeThatBeginsWithAWrongTokenEndsWithTheReason(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	for _, test := range []struct {
		write func()
		code  int
		want  string
	}{
		{func() {}, 2, "read token file: "},
		{func() { testenv.Must(t, os.WriteFile(s.token, []byte("secret\n"), 0o600)) }, 2, "it is no whole token: a token begins with clp_"},
		{func() {
			s.write(t, codalab.ProgramTokenRequest{Workers: []string{"other-*"}})
		}, 4, "403 This token is for worker other-* alone, and not for worker lab-"},
		{func() {
			testenv.Must(t, s.data.DeleteProgramToken(t.Context(), "", s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}})))
		}, 4, "the token has ended or was revoked; CodaLab's own server has no such tokens"},
		{func() {
			s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}})
			testenv.Must(t, os.Chmod(s.token, 0o640))
		}, 2, "may be read by others: chmod 600 it"},
	} {
		test.write()
		out, err := exec.Command("cl-bridge", "run", "--config", s.config).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != test.code || !strings.Contains(string(out), test.want) || strings.Contains(string(out), "secret") {
			t.Errorf("%v, want code %d and %q: %s", err, test.code, test.want, out)
		}
	}
}

func TestLiveCheckJudgesTheToken(t *testing.T) {
	t.Parallel()
	s := newTokenSite(t)
	check := func() string {
		out, _ := exec.Command("cl-bridge", "config", "check", "--live", "--config", s.config).CombinedOutput() // other things fail here
		return string(out)
	}
	id := s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}, Days: 100})
	if out := check(); !strings.Contains(out, "ok       token_file: the token "+id+" is for this bridge, and ends on ") || !strings.Contains(out, "the server accepts the login of ann") {
		t.Errorf("%s", out)
	}
	s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-cpu"}, Days: 3})
	if out := check(); !strings.Contains(out, "ends on ") || !strings.Contains(out, "and the bridge waits then") || !strings.Contains(out, "failed   token_file: the token is not for this bridge: ") {
		t.Errorf("%s", out)
	}
	testenv.Must(t, s.data.DeleteProgramToken(t.Context(), "", s.write(t, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}})))
	if out := check(); !strings.Contains(out, "failed   login: the server refuses the token: it has ended or was revoked, or this is CodaLab's own server, which has no such tokens") {
		t.Errorf("%s", out)
	}
}
