package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An archive is unpacked into ~/.local by users without root. Their service manager has to find the units there, and
// the units their programs.
func TestUnitsOfAnArchiveAreWhereTheUsersServiceManagerLooks(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	home := t.TempDir()
	prefix := filepath.Join(home, ".local")
	r := &release{source: "../..", stage: t.TempDir()}
	if err := r.units(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(prefix, userUnitDir)
	bin := filepath.Join(prefix, "bin")
	for _, d := range []string{dir, bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, analyze, append([]string{"--user"}, args...)...)
		c.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := ask("unit-paths")
	if err != nil || !slices.Contains(strings.Fields(out), filepath.Clean(dir)) {
		t.Errorf("%v: %s is not among the directories of a user's units:\n%s", err, dir, out)
	}
	for _, name := range userUnits() {
		unit := read(t, r.staged("prefix-units", name))
		path, program := filepath.Join(dir, name), strings.TrimSuffix(name, ".service")
		echo := "#!/bin/sh\necho \"$0\" \"$@\"\n"
		if err := os.WriteFile(path, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, program), []byte(echo), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := ask("verify", path); err != nil {
			t.Errorf("%s: %v\n%s\n%s", name, err, out, unit)
		}
		if got, want := started(t, unit, home), filepath.Join(bin, program)+" "; !strings.HasPrefix(got, want) {
			t.Errorf("%s starts %q, want %q", name, got, want)
		}
	}
	if unit := read(t, r.staged("units", "cl-bridge.service")); !strings.Contains(unit, "\nExecStart=/usr/bin/cl-bridge run\n") {
		t.Errorf("the package's unit:\n%s", unit)
	}
}

// started runs the script of a unit's ExecStart as systemd would, and returns its output.
func started(t *testing.T, unit, home string) string {
	t.Helper()
	_, script, found := strings.Cut(unit, "\nExecStart=/bin/sh -c '")
	script, _, ends := strings.Cut(script, "'\n")
	if !found || !ends {
		t.Fatalf("no script in\n%s", unit)
	}
	script = strings.ReplaceAll(script, "$$", "$")
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	c.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "CL_WORKER_FLAGS=--tag lab"}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(unit, "CL_WORKER_FLAGS") && !strings.HasSuffix(string(out), " --tag lab\n") {
		t.Errorf("the flags of the environment are not passed: %s", out)
	}
	return string(out)
}
