package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The data directory has everybody's bundles, and the hashes of passwords.
func TestDataDirectoryThatOthersCanWriteIsNotServed(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	top := t.TempDir()
	open, tree := filepath.Join(top, "open"), filepath.Join(top, "tree")
	testenv.Must(t, errors.Join(os.MkdirAll(filepath.Join(tree, "data"), 0o700), os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.Chmod(tree, 0o777)))
	for data, want := range map[string]string{
		open:                           "--data: everybody can write to " + open + " (mode 0777): chmod o-w " + open,
		filepath.Join(tree, "data"):    "--data: everybody can write to " + tree + " (mode 0777), and so put something else in the place of " + tree + "/data: chmod o-w " + tree + ", or chmod +t " + tree,
		filepath.Join(tree, "missing"): "--data: everybody can write to " + tree + " (mode 0777), and so put something else in the place of " + tree + "/missing",
	} {
		for _, args := range []string{"run", "restore " + top + "/backup", "import --mysql mysql://u@127.0.0.1:1/x --store " + top} {
			_, stderr, code := start(t.Context(), "", append(strings.Fields(args), "--data", data)...)
			if got := code(); got != program.ExitUsage || !strings.HasPrefix(stderr.String(), want) {
				t.Errorf("%s --data %s: exit %d, %s\nwant %s", args, data, got, stderr, want)
			}
		}
	}
	if left, err := os.ReadDir(open); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestSecretsThatOthersCanReadAreRefusedAlike(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, secret := filepath.Join(dir, "data"), filepath.Join(dir, "secret")
	testenv.Must(t, os.WriteFile(secret, []byte("correct horse\n"), 0o600))
	cert := filepath.Join(dir, "cert")
	testenv.Must(t, os.WriteFile(cert, nil, 0o644))
	does(t, "correct horse", "user", "add", "ann", "--data", data)
	for args, kind := range map[string]string{
		"user add bob --password-file " + secret:                                                     "password",
		"user passwd ann --password-file " + secret:                                                  "password",
		"import --mysql mysql://u@127.0.0.1:1/x --store " + dir + " --mysql-password-file " + secret: "password",
		"run --listen 127.0.0.1:0 --tls-cert " + cert + " --tls-key " + secret:                       "TLS key",
	} {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
			testenv.Must(t, os.Chmod(secret, mode))
			_, stderr, code := start(t.Context(), "", append(strings.Fields(args), "--data", data)...)
			if want := "the " + kind + " file " + secret + " may be read by others: chmod 600 it"; code() == 0 || !strings.HasSuffix(stderr.String(), want) {
				t.Errorf("%s, mode %04o: %s\nwant %s", args, mode, stderr, want)
			}
		}
	}
}

// Whoever can put another file in the place of a key, a certificate or the audit file chooses what the server does with it.
func TestFilesOfTheServerThatOthersCanReplaceAreRefused(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	top := t.TempDir()
	open := filepath.Join(top, "open")
	file := filepath.Join(open, "file")
	testenv.Must(t, os.Mkdir(open, 0o700))
	cert, key := writePair(t, open, 1)
	testenv.Must(t, errors.Join(os.WriteFile(file, []byte("secret\n"), 0o600), os.Chmod(open, 0o777)))
	const provider = "--oidc-issuer https://l --oidc-client-id c --public-url https://h --oidc-client-secret-file "
	for args, path := range map[string]string{
		"--secrets-key: --secrets-key " + file:                 file,
		"--secrets-key: --secrets-key " + open + "/new":        open + "/new",
		"--audit-file: --audit-file " + open + "/audit":        open + "/audit",
		"--tls-cert: --tls-cert " + cert + " --tls-key " + key: cert,
		"--oidc-client-secret-file: " + provider + file:        file,
	} {
		flag, words, _ := strings.Cut(args, ": ")
		data := filepath.Join(top, "data")
		_, stderr, code := start(t.Context(), "", append([]string{"run", "--data", data}, strings.Fields(words)...)...)
		want := flag + ": everybody can write to " + open + " (mode 0777), and so put something else in the place of " + path + ": chmod o-w " + open
		if got := code(); got != program.ExitUsage || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("%s: exit %d, %s\nwant %s", words, got, stderr, want)
		}
		if _, err := os.Stat(data); err == nil {
			t.Error("the data directory is there")
		}
	}
}
