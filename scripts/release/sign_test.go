package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// documented returns the command of the operators' first page that verifies a release.
func documented(t *testing.T) string {
	t.Helper()
	page := read(t, "../../docs/operators/start.md")
	command := regexp.MustCompile(`(?m)^\$ (ssh-keygen -Y verify .*(?:\\\n.*)*)$`).FindStringSubmatch(page)
	if command == nil {
		t.Fatal("docs/operators/start.md has no command that verifies a release")
	}
	return command[1]
}

func ssh(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v\n%s", args, err, out)
	}
}

// verify runs the documented command in the directory of a release.
func verify(t *testing.T, dir string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", documented(t))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSignedReleaseIsVerifiedByTheDocumentedCommand signs a release with a new key, and changes it in each way.
func TestSignedReleaseIsVerifiedByTheDocumentedCommand(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	keys := t.TempDir()
	ssh(t, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", filepath.Join(keys, "ours"))
	ssh(t, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", filepath.Join(keys, "theirs"))
	signed := func(t *testing.T, key, namespace string) string {
		t.Helper()
		dir := t.TempDir()
		r := &release{source: dir, out: dir, key: filepath.Join(keys, key)}
		for name, text := range map[string]string{"cl-slurm_1.2.3_linux_amd64.tar.gz": "an archive", "cl-slurm_1.2.3_amd64.deb": "a package"} {
			testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		testenv.Must(t, r.writeDigests())
		if namespace == signedFor {
			testenv.Must(t, r.sign(t.Context()))
		} else {
			ssh(t, "-q", "-Y", "sign", "-n", namespace, "-f", r.key, filepath.Join(dir, digests))
		}
		public := strings.TrimSpace(read(t, filepath.Join(keys, "ours.pub")))
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "allowed_signers"), []byte("cl-slurm "+public+"\n"), 0o600))
		return dir
	}
	write := func(name, text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	}
	nothing := func(string) error { return nil }
	for name, test := range map[string]struct {
		key, namespace string
		change         func(dir string) error
		says           string // when the command fails; empty if it does not
	}{
		"unchanged": {"ours", signedFor, nothing, ""},
		"one archive alone is there": {"ours", signedFor, func(dir string) error {
			return os.Remove(filepath.Join(dir, "cl-slurm_1.2.3_amd64.deb"))
		}, ""},
		"a changed archive":      {"ours", signedFor, write("cl-slurm_1.2.3_linux_amd64.tar.gz", "another archive"), "cl-slurm_1.2.3_linux_amd64.tar.gz: FAILED"},
		"changed digests":        {"ours", signedFor, write(digests, strings.Repeat("0", 64)+"  cl-slurm_1.2.3_amd64.deb\n"), "Signature verification failed"},
		"another one's key":      {"theirs", signedFor, nothing, "verify"},
		"a signature of a file":  {"ours", "file", nothing, "verify"},
		"no signature":           {"ours", signedFor, func(dir string) error { return os.Remove(filepath.Join(dir, signature)) }, "read signature file"},
		"no key of the signer's": {"ours", signedFor, write("allowed_signers", "# none\n"), "verify"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := signed(t, test.key, test.namespace)
			testenv.Must(t, test.change(dir))
			output, err := verify(t, dir)
			if (err == nil) != (test.says == "") || !strings.Contains(output, test.says) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func TestReleaseWithoutAKeyIsNotSigned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.Must(t, os.WriteFile(filepath.Join(dir, digests), nil, 0o600))
	testenv.Must(t, (&release{source: dir, out: dir}).sign(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, signature)); err == nil {
		t.Error("there is a signature")
	}
	if err := run(t.Context(), []string{"-sign-key", filepath.Join(dir, "none"), "-out", filepath.Join(dir, "dist")}); err == nil || !strings.Contains(err.Error(), "-sign-key: ") {
		t.Errorf("a key that is not there: %v", err)
	}
}
