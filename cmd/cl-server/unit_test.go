package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestUnitFitsTheServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../scripts/cl-server.service")
	if err != nil {
		t.Fatal(err)
	}
	value := func(key string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("the unit has no %s", key)
		}
		return string(found[1])
	}
	if got, want := value("RestartPreventExitStatus"), fmt.Sprint(program.ExitUsage); got != want {
		t.Errorf("RestartPreventExitStatus=%s, want %s", got, want)
	}
	cmd := runCommand(t.Context(), program.Process{Stderr: io.Discard, Now: time.Now})
	args := strings.Fields(value("ExecStart"))
	if err := cmd.ParseFlags(args[2:]); err != nil || args[1] != "run" {
		t.Errorf("%q: %v", args, err)
	}
	if data := cmd.Flags().Lookup("data").Value.String(); data != "/var/lib/"+value("StateDirectory") {
		t.Errorf("--data %s is not the unit's state directory", data)
	}
	shutdown, err := cmd.Flags().GetDuration("shutdown-timeout")
	patience, err2 := time.ParseDuration(value("TimeoutStopSec") + "s")
	if err := errors.Join(err, err2); err != nil || patience <= shutdown {
		t.Errorf("systemd kills the server after %s, and it may take %s to stop: %v", patience, shutdown, err)
	}
}

func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here")
	}
	if _, err := os.Stat("/run/systemd"); err != nil && os.Geteuid() != 0 {
		t.Skip("systemd-analyze needs the directory /run/systemd, and only root can make it")
	}
	text, err := os.ReadFile("../../scripts/cl-server.service")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "cl-server.service") // with a program that is there
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/cl-server", self)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		// Settings of newer versions of systemd, which the unit names.
		known := strings.Contains(line, "RestartSteps") || strings.Contains(line, "RestartMaxDelaySec")
		if strings.Contains(line, "cl-server.service") && !known {
			t.Error(strings.TrimSpace(line))
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
