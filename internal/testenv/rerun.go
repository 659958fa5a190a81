package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// AsResearcher runs the calling test once more, in a process of researcher's
// own, and reports there what becomes of it here. It returns true in that
// process and false in this one:
//
//	if !testenv.AsResearcher(t) {
//		return
//	}
//
// The process has HOME and TMPDIR in a SharedDir, PATH, CLTEST_REQUIRE, and
// nothing else of this one's environment; its working directory is not the
// package's.
func AsResearcher(t *testing.T) bool {
	t.Helper()
	u := Researcher(t)
	if os.Geteuid() == u.UID {
		return true
	}
	dir := SharedDir(t)
	program := filepath.Join(dir, "test")
	CopyProgram(t, program) // researcher may not look into go test's own directory
	args := []string{"-test.v", "-test.count=1", "-test.run=^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprintf("-test.timeout=%s", max(time.Until(deadline)-time.Second, time.Second)))
	}
	again := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // this very program
	again.Dir = dir
	again.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "USER=" + u.Name, "HOME=" + dir, "TMPDIR=" + dir,
		"CLTEST_REQUIRE=" + os.Getenv("CLTEST_REQUIRE"),
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

// CopyProgram copies the program of the calling test to where other users may
// run it.
func CopyProgram(tb testing.TB, to string) {
	tb.Helper()
	must(tb, copyOwnProgram(to))
}

func copyOwnProgram(to string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("copy own program: %w", err)
	}
	defer from.Close() //nolint:errcheck // only read
	// A program that another goroutine starts now would hold the file open for
	// writing until its exec, and ours could not be run meanwhile (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	copied, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // others run it
	if err != nil {
		return fmt.Errorf("copy own program: %w", err)
	}
	_, err = io.Copy(copied, from)
	if cerr := copied.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("copy own program: %w", err)
	}
	return nil
}
