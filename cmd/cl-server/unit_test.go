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
	"github.com/cl-slurm/cl-slurm/internal/testenv"
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

// analyze returns systemd-analyze, or skips the test.
func analyze(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here")
	}
	if _, err := os.Stat("/run/systemd"); err != nil && os.Geteuid() != 0 {
		t.Skip("systemd-analyze needs the directory /run/systemd, and only root can make it")
	}
	return exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
}

// unitNames are the units that a release has.
var unitNames = []string{"cl-bridge", "cl-server", "cl-worker"}

func TestUnitsAreValid(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range unitNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../scripts/" + name + ".service")
			if err != nil {
				t.Fatal(err)
			}
			unit := filepath.Join(t.TempDir(), name+".service") // with a program that is there
			if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/"+name, self)), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := analyze(t, "verify", unit)
			for line := range strings.Lines(string(out)) {
				// Settings of newer versions of systemd, which the unit names.
				known := strings.Contains(line, "RestartSteps") || strings.Contains(line, "RestartMaxDelaySec")
				if strings.Contains(line, name+".service") && !known {
					t.Error(strings.TrimSpace(line))
				}
			}
			if err != nil {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
		})
	}
}

// systemd rates what a program could do to the machine: 0 is nothing, and 10 all.
func TestServersUnitIsHardened(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	out, err := analyze(t, "security", "--offline=true", "--no-pager", "--threshold=20", "../../scripts/cl-server.service")
	if err != nil {
		t.Errorf("the exposure is above 2.0: %v\n%s", err, out)
	}
}

// Containers need user namespaces, mounts and newuidmap, and the bridge needs newuidmap for what they leave. In a user's
// manager each of these settings takes one of them away (systemd.exec(5): NoNewPrivileges=, which filters of system calls
// imply).
func TestUnitsOfContainersKeepTheirPrivileges(t *testing.T) {
	t.Parallel()
	taking := regexp.MustCompile(`(?m)^(NoNewPrivileges|Private\w+|Protect\w+|Restrict\w+|SystemCall\w+|LockPersonality|MemoryDenyWriteExecute|CapabilityBoundingSet|RootDirectory|DynamicUser)=.*$`)
	for _, name := range unitNames {
		text, err := os.ReadFile("../../scripts/" + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		if found := taking.FindAll(text, -1); (len(found) > 0) != (name == "cl-server") {
			t.Errorf("%s has %q", name, found)
		}
	}
}
