package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
)

// AsResearcher runs the calling test again in a process of the user researcher, and
// takes over its result. It returns true in that process and false in this one:
//
//	if !testenv.AsResearcher(t) {
//		return
//	}
//
// That process has HOME and TMPDIR in a SharedDir, PATH, CLTEST_REQUIRE, SLURM, and nothing
// else of this environment. Its working directory is not that of the package.
func AsResearcher(t *testing.T) bool {
	t.Helper()
	u := Researcher(t)
	if os.Geteuid() == u.UID {
		return true
	}
	dir := SharedDir(t)
	program := filepath.Join(dir, "test")
	CopyProgram(t, program) // researcher cannot read the directory of go test
	args := []string{"-test.v", "-test.count=1", "-test.run=^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprintf("-test.timeout=%s", max(time.Until(deadline)-time.Second, time.Second)))
	}
	again := exec.CommandContext(t.Context(), program, args...)
	again.Dir = dir
	again.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "USER=" + u.Name, "HOME=" + dir, "TMPDIR=" + dir,
		"CLTEST_REQUIRE=" + os.Getenv("CLTEST_REQUIRE"),
		slurmcluster.Variable + "=" + os.Getenv(slurmcluster.Variable),
	}
	again.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	out, err := again.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("as researcher: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("as researcher:\n%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Fatalf("as researcher: the test was not run\n%s", out)
	default:
		t.Logf("as researcher:\n%s", out)
	}
	return false
}

// CopyProgram copies the calling test's program to a path from which other users may run
// it.
func CopyProgram(tb testing.TB, to string) {
	tb.Helper()
	self, err := os.Executable()
	Must(tb, err)
	content, err := os.ReadFile(self)
	Must(tb, err)
	WriteProgram(tb, to, content)
}
