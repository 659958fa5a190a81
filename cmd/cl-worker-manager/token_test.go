package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// tokenFiles returns the tokens in a work directory.
func tokenFiles(t *testing.T, dir string) (tokens []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		token, err := account.ReadToken(file)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// TestPilotsRunBundlesWithTokensThatEndWithThem runs bundles on a cl-server in pilots without a password.
func TestPilotsRunBundlesWithTokensThatEndWithThem(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	uuids := stage(t, api, 2, nil)
	dir := t.TempDir()
	slurm := &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())}
	m, b := newManager(t, web.URL, dir, slurm)
	b.Worker.TakesToken = true
	if err := m.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	tokens := tokenFiles(t, dir)
	if len(tokens) != 2 || tokens[0] == tokens[1] {
		t.Fatalf("the tokens are %q", tokens)
	}
	for _, uuid := range uuids {
		awaitState(t, api, uuid, codalab.StateReady)
	}
	var left []string
	now := time.Now()
	m.Now = func() time.Time { return now }
	testenv.Await(t, "the files of all tokens are gone", func() bool {
		now = now.Add(b.Refresh())
		testenv.Must(t, m.Pass(t.Context()))
		left = tokenFiles(t, dir)
		return len(left) == 0
	}, &left)
	for _, r := range slurm.requests {
		log, err := os.ReadFile(r.Output)
		if err != nil {
			t.Error(err)
		}
		for _, secret := range append(tokens, "secret") {
			if strings.Contains(strings.Join(r.Args(), " ")+r.Script+string(log), secret) {
				t.Errorf("%s is in the job %s, or in its log %s", secret, r.Script, log)
			}
		}
	}
	for _, token := range tokens {
		late, err := client.New(web.URL, client.Options{Token: func(context.Context) (string, error) { return token, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.User(t.Context()); err == nil {
			t.Error("the token of a pilot that has ended is valid")
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".password")); err == nil {
		t.Error("the password is on the disk")
	}
}

// TestManagerWithAProgramTokenRunsBundles gives a manager no password: with its token it finds the staged bundles, and makes
// and ends the tokens of its pilots.
func TestManagerWithAProgramTokenRunsBundles(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	uuids := stage(t, api, 2, nil)
	made, err := api.AddProgramToken(t.Context(), codalab.ProgramTokenRequest{Workers: codalab.ManagerWorkers(), Manager: true})
	testenv.Must(t, err)
	file := filepath.Join(t.TempDir(), "token")
	testenv.Must(t, os.WriteFile(file, []byte(made.Access+"\n"), 0o600))
	login, err := (&loginFiles{token: file}).find(t.Context(), program.Process{}, web.URL, "")
	testenv.Must(t, err)
	own, err := login.connect(web.URL, nil)
	testenv.Must(t, err)
	testenv.Must(t, login.findUser(t.Context(), own, true, program.Process{Now: time.Now}, nil))
	if login.User != "ann" {
		t.Errorf("the token's user is %q", login.User)
	}
	dir := t.TempDir()
	slurm := &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())}
	m, b := newManager(t, web.URL, dir, slurm)
	b.Worker.TakesToken, b.Login, m.Server = true, login.forWorker, own
	testenv.Must(t, m.Pass(t.Context()))
	if len(tokenFiles(t, dir)) != 2 {
		t.Fatal("the pilots have no tokens")
	}
	for _, uuid := range uuids {
		awaitState(t, api, uuid, codalab.StateReady)
	}
	now := time.Now()
	m.Now = func() time.Time { return now }
	testenv.Await(t, "the files of all tokens are gone", func() bool {
		now = now.Add(b.Refresh())
		testenv.Must(t, m.Pass(t.Context()))
		return len(tokenFiles(t, dir)) == 0
	})
	if _, err := login.forWorker(); err == nil || !strings.Contains(err.Error(), "must not have the manager's") {
		t.Errorf("workers without tokens get %v", err)
	}
}

func TestManagersTokenAndPasswordExcludeEachOther(t *testing.T) {
	t.Parallel()
	_, err := (&loginFiles{token: "a", password: "b"}).find(t.Context(), program.Process{}, "http://h", "")
	var coded *program.Error
	if !errors.As(err, &coded) || coded.Code != program.ExitUsage {
		t.Errorf("%v", err)
	}
}

// noBundles is a server without bundles: the stand-in of CodaLab's own has no search.
type noBundles struct{ *client.Client }

// SearchBundles finds none.
func (noBundles) SearchBundles(context.Context, string, []string) ([]client.BundleInfo, json.RawMessage, error) {
	return nil, nil, nil
}

// Workers returns none.
func (noBundles) Workers(context.Context) ([]codalab.WorkerInfo, error) { return nil, nil }

// startCodaLabsOwn starts a stand-in of CodaLab's own server.
func startCodaLabsOwn(t *testing.T) *httptest.Server {
	t.Helper()
	service, err := stocktest.New(stocktest.Options{Dir: t.TempDir(), Users: []stocktest.User{{Name: "ann", Password: "secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(service)
	t.Cleanup(web.Close)
	return web
}

// TestManagerEndsOnAServerWithoutTokensIfItsWorkersHaveNoLogin names no secret and no password file. The manager ends although no
// bundle is staged.
func TestManagerEndsOnAServerWithoutTokensIfItsWorkersHaveNoLogin(t *testing.T) {
	t.Parallel()
	web := startCodaLabsOwn(t)
	azure := batchtest.New(t, 1)
	for flag, words := range map[string][]string{
		"--worker-secret": {"aws-batch"},
		"--worker-password-file": {
			"azure-batch", "--account-name", azure.Account, "--account-key", azure.Key, "--service-url", azure.URL, "--job-id", azure.Job,
		},
	} {
		t.Run(words[0], func(t *testing.T) {
			t.Parallel()
			call := func(more ...string) (string, error) {
				env := map[string]string{"CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": "secret"}
				return runHere(t, env, slices.Concat([]string{"--server", web.URL, "--min-workers", "0", "--worker-image", "lab/cl-worker:1"}, words, more)...)
			}
			out, err := call()
			var coded *program.Error
			if !errors.As(err, &coded) || coded.Code != program.ExitUsage || !strings.Contains(err.Error(), flag) || strings.Contains(out, "started a worker") {
				t.Errorf("the manager: %v: %s", err, out)
			}
			if words[0] == "aws-batch" {
				return // in this process --check would ask AWS itself
			}
			if ids := azure.IDs(""); len(ids) > 0 {
				t.Errorf("there are tasks: %q", ids)
			}
			out, err = call("--check")
			if err == nil || !regexp.MustCompile(`(?m)^login of workers +no +this server gives out no worker tokens, .*`+flag).MatchString(out) {
				t.Errorf("--check: %v: %s", err, out)
			}
			if out, err = call("--check", flag, "/etc/codalab/login"); !strings.Contains(out, "\nlogin of workers") || strings.Contains(out, "no worker tokens") {
				t.Errorf("--check %s: %v: %s", flag, err, out)
			}
		})
	}
}

// TestPilotsOfCodaLabsOwnServerGetThePasswordFile starts a pilot for a stand-in of CodaLab's own server.
func TestPilotsOfCodaLabsOwnServerGetThePasswordFile(t *testing.T) {
	t.Parallel()
	web := startCodaLabsOwn(t)
	dir := t.TempDir()
	slurm := &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())}
	m, b := newManager(t, web.URL, dir, slurm)
	b.Worker.TakesToken, m.Min, m.Server = true, 1, noBundles{connectAnn(t, web.URL)}
	testenv.Must(t, m.Pass(t.Context()))
	if script := slurm.requests[0].Script; !strings.Contains(script, "'--password-file' '"+filepath.Join(dir, ".password")+"'") || len(tokenFiles(t, dir)) > 0 {
		t.Errorf("%s", script)
	}
}

// TestGuesserDelaysNoManagerThatHasSignedInBefore uses up the tries of ann's name on the manager's own network.
func TestGuesserDelaysNoManagerThatHasSignedInBefore(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	home := t.TempDir()
	m := &manager{Process: program.Process{Getenv: func(name string) string { return map[string]string{"HOME": home}[name] }}}
	signIn := func(password string, device client.TokenCache) error {
		api, err := (&login{Login: account.Login{User: "ann", Password: password}}).connect(web.URL, device)
		testenv.Must(t, err)
		_, err = api.User(t.Context())
		return err
	}
	testenv.Must(t, signIn("secret", m.device(web.URL)))
	for range 11 {
		if err := signIn("wrong", nil); err == nil {
			t.Fatal("a wrong password is taken")
		}
	}
	if err := signIn("secret", nil); !codalab.IsStatus(err, http.StatusTooManyRequests) {
		t.Errorf("an unknown program gets %v", err)
	}
	testenv.Must(t, signIn("secret", m.device(web.URL)))
}
