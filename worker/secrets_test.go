package worker

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// giveSecrets writes values as a bridge does.
func (s site) giveSecrets(t *testing.T, values map[string]string) {
	t.Helper()
	must(t, spool.Disk{Layout: s.layout}.GiveSecrets(bundle, "b1.7", values))
}

// withSecrets makes a specification name secrets.
func withSecrets(names ...string) func(*spool.Spec) {
	return func(s *spool.Spec) { s.Submission, s.Secrets = "b1.7", names }
}

// TestSecretsAreInTheCommandsEnvironmentAlone looks for their values in all files of the shared directory while the command
// runs and after it.
func TestSecretsAreInTheCommandsEnvironmentAlone(t *testing.T) {
	t.Parallel()
	const key, pem = "correct-horse", "-----BEGIN-----\nAAAABBBBCCCC\nshort\n"
	var s site
	leaks := func() {
		for path, text := range tree(t, string(s.layout)) {
			if strings.Contains(text, key) || strings.Contains(text, "AAAABBBBCCCC") {
				t.Errorf("%s has a value: %s", path, text)
			}
		}
	}
	s = newSite(t, t.TempDir(), withSecrets("KEY", "PEM", "PIN"))
	s.giveSecrets(t, map[string]string{"KEY": key, "PEM": pem, "PIN": "1234", "HOME": "/evil"})
	if before := tree(t, string(s.layout)); !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(text string) bool { return strings.Contains(text, key) }) {
		t.Fatal("the search finds nothing before the worker has taken the values")
	}
	var c container.Container
	w := newWorker(t, func(ctx context.Context, got container.Container) (container.Exit, error) {
		c = got
		leaks()
		return succeeds(ctx, got)
	})
	if e := s.run(t, w); e.Cause != spool.CauseSucceeded {
		t.Fatalf("%+v", e)
	}
	leaks()
	env := c.Environment(nil)
	for _, want := range []string{"KEY=" + key, "PEM=" + pem, "PIN=1234", "HOME=/" + bundle} {
		if !slices.Contains(env, want) {
			t.Errorf("no %q in %q", want, env)
		}
	}
	if diff := cmp.Diff([]string{"-----BEGIN-----", pem, "AAAABBBBCCCC", key}, c.Masked); diff != "" {
		t.Errorf("masked (-want +got):\n%s", diff)
	}
}

func TestRunWithoutItsSecretsIsNotStarted(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s site){
		"no file":        func(site) {},
		"a value less":   func(s site) { s.giveSecrets(t, map[string]string{"A": "a"}) },
		"another format": func(s site) { s.giveSecrets(t, nil); spoil(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, t.TempDir(), withSecrets("A", "B"))
			prepare(s)
			w := newWorker(t, func(context.Context, container.Container) (container.Exit, error) {
				t.Error("the command was run")
				return container.Exit{}, nil
			})
			if e := s.run(t, w); e.Cause != spool.CausePlatform || !e.NotStarted || e.NodeAtFault || !strings.Contains(e.Failure, "secret") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// spoil replaces the file of secrets by one of another version.
func spoil(t *testing.T, s site) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(string(s.layout), "spool", "secrets", "*"))
	must(t, err)
	for _, f := range files {
		must(t, os.WriteFile(f, []byte(`{"format": 99}`), 0o600))
	}
}

// A worker that does not own the attempt must not take what its owner needs.
func TestWorkerOfAnAttemptThatIsTakenLeavesTheSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), withSecrets("A"))
	s.giveSecrets(t, map[string]string{"A": "a"})
	_, _, err := s.attempt.Begin(t.Context(), spool.Started{Token: "theirs", Node: "n2", Job: "6"})
	must(t, err)
	before := tree(t, string(s.layout))
	if _, err := newWorker(t, succeeds).Run(t.Context(), s.attempt.SpecPath()); err == nil {
		t.Error("the worker ran it")
	}
	if diff := cmp.Diff(before, tree(t, string(s.layout))); diff != "" {
		t.Errorf("the worker touched (-before +after):\n%s", diff)
	}
}
