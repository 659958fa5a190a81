package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// A service manager does not start again what ends with the code for usage.
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
		{[]string{"run"}, "--config is needed"},
		{[]string{"run", "--colour"}, "unknown flag"},
		{[]string{"run", "extra"}, "unknown command"},
		{[]string{"config", "check"}, "--config is needed"},
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
			Getenv: func(string) string { return "" }, Now: time.Now,
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

func TestQueueWithBundlesMayNotBeTakenAway(t *testing.T) {
	t.Parallel()
	c := config{Queue: map[string]*queueConfig{"cpu": {}}}
	rows := []plan.Row{{Bundle: "0x1", Queue: "cpu", Phase: plan.Running}, {Bundle: "0x2", Queue: "gpu", Phase: plan.Done}}
	if err := checkQueues(c, rows); err != nil {
		t.Errorf("what is done needs no queue: %v", err)
	}
	rows[1].Phase = plan.Running
	if err := checkQueues(c, rows); err == nil || !strings.Contains(err.Error(), "[queue.gpu] is gone") || !strings.Contains(err.Error(), "0x2") {
		t.Errorf("error %v does not say which queue and why", err)
	}
}

func TestSlurmThatIsNotThereIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config{Server: "http://127.0.0.1:1", User: "ann", PasswordFile: password}
	c.Slurm.Bin = "/opt/nosuch"
	err := serve(t.Context(), program.Process{Getenv: func(string) string { return "" }}, c, tracing{}, nil)
	if err == nil || !strings.Contains(err.Error(), "/opt/nosuch/sbatch") || !strings.Contains(err.Error(), "slurm.bin") {
		t.Errorf("error %v does not say where Slurm was looked for", err)
	}
}
