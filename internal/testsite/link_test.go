package testsite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

func TestLinkedDataIsUsedWithoutAByteCopied(t *testing.T) {
	t.Parallel()
	data := testenv.SharedDir(t)
	s := own(t, testsite.Options{Config: "[[link]]\nroot = \"" + data + "\"\n"})
	for name, text := range map[string]string{"set/a": "one\n", "set/sub/b": "two\n", "away/secret": "secret\n"} {
		path := filepath.Join(data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../away/secret", filepath.Join(data, "set/out")); err != nil {
		t.Fatal(err)
	}
	set := cl(t, s, "upload", "--link", filepath.Join(data, "set"))
	command := "cat in/a part; cat in/out; (echo x > in/a) || echo read-only; pwd -P > /dev/null"
	bundle := run(t, s, "cpu", command, "in:"+set, "part:"+set+"/sub/b")
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "one\ntwo\nread-only" {
		t.Errorf("stdout %q", got)
	}
	if out, err := s.CL(t.Context(), "cat", set+"/a"); err == nil {
		t.Errorf("the server read %q: the run's input may have been its copy", out)
	}
	if err := os.WriteFile(filepath.Join(data, "set/c"), []byte("three\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle = run(t, s, "cpu", "until test -e in/go; do sleep 0.1; done", "in:"+set)
	until(t, s, bundle, "run_status", `^Running job in container \(Slurm job [0-9]+\)\. The data of dependency in \(link to /.*/set\) has changed since it was first used here on `)
	if err := os.WriteFile(filepath.Join(data, "set/go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ready(t, s, bundle)
	if said := s.Log(); !strings.Contains(said, "changed while the bundle was under way: ") {
		t.Error("the log does not say that the data changed under the bundle")
	}
	refused := run(t, s, "cpu", "true", "in:"+cl(t, s, "upload", "--link", "/etc"))
	until(t, s, refused, "failure_message", `Dependency in \(link to /etc\): not under a directory that this site links`)
}

func TestSharedDiskNeedsNoCopies(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{SharedDisk: true})
	input := filepath.Join(s.Dir, "home", "in")
	if err := errors.Join(os.Mkdir(input, 0o755), os.WriteFile(filepath.Join(input, "n"), []byte("3\n1\n2\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	data := cl(t, s, "upload", input)
	first := run(t, s, "cpu", "sort in/n; mkdir d; sort in/n > d/sorted; echo x > d/x.tmp; chmod 0 d", "in:"+data, "--exclude-patterns", "*.tmp", "--request-cpus", "1")
	ready(t, s, first)
	second := run(t, s, "cpu", "cat f; touch g/y || true; until test -e go; do sleep 0.1; done; cat go", "f:"+first+"/d/sorted", "g:"+first)
	until(t, s, second, "state", "^running$")
	until(t, s, second, "run_status", `^Running job in container \(Slurm job [0-9]+\)\.$`)
	until(t, s, second, "job_handle", "^[0-9]+$")
	untilPrinted(t, s, second, "1\n2\n3")
	if out, err := s.Run(t.Context(), "sh", "-c", "for d in "+s.Shared+"/runs/"+second+"/1-*; do echo on > $d/go; done"); err != nil {
		t.Fatal(err, out)
	}
	ready(t, s, second)
	for target, want := range map[string]string{first + "/stdout": "1\n2\n3", first + "/d/sorted": "1\n2\n3", second + "/stdout": "1\n2\n3\non"} {
		if got := cl(t, s, "cat", target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if got := cl(t, s, "cat", first); strings.Contains(got, " in ") || strings.Contains(got, ".tmp") {
		t.Errorf("results:\n%s", got)
	}
	for _, bundle := range []string{first, second} {
		if _, err := os.Stat(filepath.Join(s.Shared, "runs", bundle, "1")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the working directory of %s was not moved: %v", bundle, err)
		}
		places, err := filepath.Glob(filepath.Join(s.Dir, "server/bundles", bundle+"-*"))
		if err != nil || len(places) != 1 {
			t.Errorf("the server has %v, %v", places, err)
		}
	}
}
