package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A home on NFS is usual, so init names another place for the ledger. The error of a bridge
// without one names the key to set.
func TestHomeOnANetworkFileSystemHasNoLedger(t *testing.T) {
	t.Parallel()
	home, dir := testenv.NetworkDisk(t), t.TempDir()
	atHome := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), program.Process{
			Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Now: time.Now,
			Getenv: func(name string) string {
				if name == "XDG_STATE_HOME" {
					return filepath.Join(home, "state")
				}
				return noConfiguration(name)
			},
		})
		return out.String(), err
	}
	_, _, web := startServer(t, filepath.Join(dir, "server"))
	slurm := string(writeSlurmCommands(t, t.TempDir()))
	password, usual, written := filepath.Join(dir, "password"), filepath.Join(dir, "usual.toml"), filepath.Join(dir, "written.toml")
	shared := filepath.Join(dir, "shared")
	text := fmt.Sprintf("server = %q\nuser = \"ann\"\npassword_file = %q\nshared = %q\n[slurm]\nbin = %q\n[queue.cpu]\n", web.URL, password, shared, slurm)
	if err := errors.Join(os.WriteFile(password, []byte("secret\n"), 0o600), os.WriteFile(usual, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run"}, {"status"}, {"sweep"}, {"explain", gone}, {"recover"}} {
		_, err := atHome(append(args, "--config", usual)...)
		if !errors.Is(err, ledger.ErrNetwork) || !strings.Contains(err.Error(), ledger.LocalPlace()) || program.Code(t.Context(), err) != program.ExitUsage {
			t.Errorf("%s: %v, want a refusal that names another place", args[0], err)
		}
	}
	if out, err := atHome("init", "--config", written, "--server", web.URL, "--user", "ann", "--password-file", password, "--shared", shared, "--slurm-bin", slurm, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if c, err := config.Read(written); err != nil || c.Ledger != ledger.LocalPlace() {
		t.Errorf("init wrote the ledger %q, %v; want %q", c.Ledger, err, ledger.LocalPlace())
	}
}
