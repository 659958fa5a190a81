package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// noConfiguration is an environment without a configuration.
func noConfiguration(name string) string {
	if name == "XDG_CONFIG_HOME" {
		return "/nonexistent"
	}
	return ""
}

// A service manager does not restart a program that ends with the code for usage.
func TestMistakesOfTheOperatorEndWithTheirOwnExitCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("p\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := func(name, extra string) string {
		path := filepath.Join(dir, name+".toml")
		text := "server = \"http://127.0.0.1:1\"\nuser = \"ann\"\npassword_file = \"" + password + "\"\nshared = \"" + dir + "/shared\"\n[queue.cpu]\n" + extra
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"nosuch"}, "unknown command"},
		{[]string{"run"}, "no configuration: "},
		{[]string{"run", "--colour"}, "unknown flag"},
		{[]string{"run", "extra"}, "unknown command"},
		{[]string{"config", "check"}, "no configuration: "},
		{[]string{"run", "--config", config("trace", ""), "--trace-size", "much"}, "invalid argument"},
		{[]string{"replay"}, "accepts 1 arg"},
		{[]string{"replay", filepath.Join(dir, "nosuch")}, "no such file"},
		{[]string{"config", "check", "--config", config("unknown", "colour = 1\n")}, "unknown key queue.cpu.colour"},
		{[]string{"config", "check", "--config", config("type", "partition = 1\n")}, "want a text in quotes"},
		{[]string{"run", "--config", config("readable", "")}, "chmod 600 it"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), program.Process{
			Args: test.args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			Getenv: noConfiguration, Now: time.Now,
		})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("cl-bridge %s: %v, want a line with %q", strings.Join(test.args, " "), err, test.want)
		}
		var coded *program.Error
		if !errors.As(err, &coded) || coded.Code != program.ExitUsage {
			t.Errorf("cl-bridge %s: %v does not end with code 2", strings.Join(test.args, " "), err)
		}
	}
}

func TestOutagesEndWithTheCodeOfAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	usage := program.Usage(&sbatch.Error{})
	for _, test := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("open ledger: %w", sqldb.ErrUnavailable), program.ExitTransient},
		{errors.Join(sqldb.ErrFull, errors.New("close ledger")), program.ExitTransient},
		{&sbatch.Error{Op: "observe"}, program.ExitTransient},
		{&transfer.Error{Err: io.EOF, Retry: true}, program.ExitTransient},
		{&transfer.Error{Err: io.EOF}, program.ExitFailure},
		{usage, program.ExitUsage},
		{errors.New("no"), program.ExitFailure},
		{nil, 0},
	} {
		if code := program.Code(t.Context(), withExitCode(test.err)); code != test.want {
			t.Errorf("%v ends with %d, want %d", test.err, code, test.want)
		}
	}
}

func TestSlurmThatIsNotThereIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Config{Server: "http://127.0.0.1:1", User: "ann", PasswordFile: password}
	c.Slurm.Bin = "/opt/nosuch"
	err := serve(t.Context(), program.Process{Getenv: func(string) string { return "" }}, c, &running{log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "/opt/nosuch/sbatch") || !strings.Contains(err.Error(), "slurm.bin") {
		t.Errorf("error %v does not say where Slurm was looked for", err)
	}
}

// The unit in scripts/ does not start a bridge again that ended with this code.
func TestServerThatRefusesTheLoginEndsTheBridgeWithItsOwnCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, _, web := startServer(t, filepath.Join(dir, "server"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	password, config := filepath.Join(dir, "password"), filepath.Join(dir, "bridge.toml")
	text := fmt.Sprintf("server = %q\nuser = \"ann\"\npassword_file = %q\nshared = %q\nledger = %q\nworker = %q\n[slurm]\nbin = %q\n[queue.cpu]\n",
		web.URL, password, filepath.Join(dir, "shared"), filepath.Join(dir, "ledger.db"), self, writeSlurmCommands(t, t.TempDir()))
	if err := errors.Join(os.WriteFile(password, []byte("wrong\n"), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = command(t, "run", "--config", config)
	if code := program.Code(t.Context(), err); code != program.ExitDenied || !strings.Contains(err.Error(), "refuses user \"ann\"") || !strings.Contains(err.Error(), "cl-bridge doctor") {
		t.Errorf("it ends with %d: %v", code, err)
	}
	if last, err := lease.Read(spool.Layout(filepath.Join(dir, "shared")).BridgeDir()); err != nil || !last.Ended || !strings.Contains(string(last.Document), "refuses user") {
		t.Errorf("the last heartbeat is %s, %v", last.Document, err)
	}
	unit, err := os.ReadFile("../../scripts/cl-bridge.service")
	if err != nil || !strings.Contains(string(unit), fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", program.ExitUsage, program.ExitDenied)) {
		t.Errorf("%v: the unit starts it again:\n%s", err, unit)
	}
	if code := program.Code(t.Context(), refusedLogin(&codalab.Error{Status: http.StatusBadGateway})); code != program.ExitTransient {
		t.Errorf("a server in trouble: %d", code)
	}
}
