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
	until(t, s, bundle, "run_status", `^Running job in container\. The data of dependency in \(link to /.*/set\) has changed since it was first used here on `)
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
