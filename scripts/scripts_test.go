// Package scripts_test runs the scripts that need no set-up.
package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// vuln runs scripts/vuln with a program in place of govulncheck, which ends with this status.
func vuln(t *testing.T, database, status string) (code int, output string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "govulncheck")
	testenv.Must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"checked $*\"\nexit "+status+"\n"), 0o755))
	cmd := exec.CommandContext(t.Context(), "./vuln", program)
	cmd.Env = append(os.Environ(), "GOVULNDB="+database)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		testenv.Must(t, err)
	}
	return code, string(out)
}

func TestVulnSaysThatItsDatabaseCannotBeReached(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	code, output := vuln(t, "http://127.0.0.1:1", "0")
	if code != 4 || !strings.Contains(output, "nothing was checked: the database of vulnerabilities at http://127.0.0.1:1 cannot be reached") {
		t.Errorf("exit %d, %s", code, output)
	}
	if strings.Contains(output, "checked -db") {
		t.Errorf("it has checked: %s", output)
	}
}

func TestVulnReportsVulnerableCode(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	dir := t.TempDir()
	testenv.Must(t, errors.Join(os.Mkdir(filepath.Join(dir, "index"), 0o700), os.WriteFile(filepath.Join(dir, "index", "db.json"), []byte("{}"), 0o600)))
	for status, want := range map[string]struct {
		code int
		says string
	}{"0": {0, "checked -db file://" + dir + " ./..."}, "3": {3, "update the modules or Go"}, "1": {1, "checked"}} {
		if code, output := vuln(t, "file://"+dir, status); code != want.code || !strings.Contains(output, want.says) {
			t.Errorf("govulncheck ends with %s: exit %d, %s", status, code, output)
		}
	}
}
