package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The backup is made while the server runs, and a server starts on the restored directory.
func TestServerStartsOnARestoredBackup(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		with := func(args ...string) []string { return append(args, flags...) }
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		does(t, "correct horse", with("user", "add", "alice")...)
		_, _, ended := serveAt(ctx, flags)
		backup, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
		if said := does(t, "", with("backup", backup)...); said != backup+": 0 bundles, 0 with contents\n" {
			t.Error(said)
		}
		refuses(t, "file already exists", with("backup", backup)...)
		stop()
		ended()
		to := []string{"--data", dir}
		if len(flags) > 2 {
			to = append(to, "--database", testenv.Postgres(t))
		}
		does(t, "", append([]string{"restore", backup}, to...)...)
		refuses(t, "the directory is not empty", append([]string{"restore", backup}, to...)...)
		refuses(t, "it is a backup", "run", "--data", backup)
		refuses(t, "is no complete backup", "restore", dir, "--data", dir+"2")
		ctx, stop = context.WithCancel(t.Context())
		defer stop()
		address, _, ended := serveAt(ctx, to)
		login(t, address, "alice", "correct horse")
		stop()
		ended()
	})
}

func TestFsckPrintsALineForEachFinding(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, dir string, flags []string) {
		refuses(t, "no such file or directory", append([]string{"fsck"}, flags...)...) // a mistyped directory
		does(t, "correct horse", append([]string{"user", "add", "alice"}, flags...)...)
		p := startProcess(t, flags)
		p.signIn()
		uuid := p.create(t.Context())
		status, said := p.send(t.Context(), "PUT", "/bundles/"+uuid+"/contents/blob/?filename=x", strings.NewReader("text"))
		if status != 200 {
			t.Fatalf("%d %s", status, said)
		}
		p.kill()
		files, err := filepath.Glob(filepath.Join(dir, "bundles", uuid+"-*", "contents"))
		if err != nil || len(files) != 1 || os.WriteFile(files[0], []byte("other text"), 0o600) != nil || os.Mkdir(filepath.Join(dir, "bundles", "x"), 0o700) != nil {
			t.Fatalf("%q, %v", files, err)
		}
		stdout, stderr, code := start(t.Context(), "", append([]string{"fsck"}, flags...)...)
		want := "size: " + uuid + ": data_size is 4, the contents have 10 bytes\nunnamed: x: no bundle names these contents\n"
		if got := code(); got != 1 || stdout.String() != want || !strings.HasPrefix(stderr.String(), "exit status") {
			t.Errorf("exit %d, %s%s", got, stdout, stderr)
		}
		if said := does(t, "", append([]string{"fsck", "--repair"}, flags...)...); said != strings.ReplaceAll(want, "\n", " (mended)\n") {
			t.Error(said)
		}
		if said := does(t, "", append([]string{"fsck"}, flags...)...); said != "" {
			t.Error(said)
		}
	})
}
