package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Program is a program of this project, built once for all tests of a process. It is
// built without cgo, so that it runs in any image. TestMain removes it.
//
// A machine without Go has the programs in the directory that CLTEST_PROGRAMS names: each has the name of
// its package's directory, and behind it, after a hyphen, that of its Architecture if it has one.
type Program struct {
	// Package is a path from the directory of the tests. If its module is another one than that of the
	// tests, Module is the module's directory, and Package a path from there.
	Package, Module string
	// Architecture is Go's name of the architecture to build for; empty means this machine's.
	Architecture string

	once sync.Once
	path string
	lent bool // CLTEST_PROGRAMS has it
}

// Path returns a path at which every user may run the program. The first call builds
// it.
func (p *Program) Path(tb testing.TB) string {
	tb.Helper()
	p.once.Do(func() {
		if dir := os.Getenv("CLTEST_PROGRAMS"); dir != "" {
			absolute, err := filepath.Abs(p.Package)
			Must(tb, err)
			name := filepath.Base(absolute)
			if p.Architecture != "" {
				name += "-" + p.Architecture
			}
			_, err = os.Stat(filepath.Join(dir, name))
			Must(tb, err)
			p.path, p.lent = filepath.Join(dir, name), true
			return
		}
		dir, err := os.MkdirTemp("", "program-")
		Must(tb, errors.Join(err, os.Chmod(dir, 0o755)))
		path := filepath.Join(dir, "program")
		build := exec.CommandContext(tb.Context(), "go", "build", "-o", path, p.Package)
		build.Dir = p.Module
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if p.Architecture != "" {
			build.Env = append(build.Env, "GOARCH="+p.Architecture)
		}
		if said, err := build.CombinedOutput(); err != nil {
			_ = os.RemoveAll(dir)
			tb.Fatalf("build %s: %v: %s", p.Package, err, said)
		}
		p.path = path
	})
	if p.path == "" {
		tb.Fatal("the program could not be built: see the first test that needs it")
	}
	return p.path
}

// Remove removes the program, if it was built.
func (p *Program) Remove() {
	if p.path != "" && !p.lent {
		_ = os.RemoveAll(filepath.Dir(p.path)) // a temporary directory
	}
}

// WriteProgram writes a program, such as a script, that this process may start at once.
func WriteProgram(tb testing.TB, path string, content []byte) {
	tb.Helper()
	// A child that another goroutine forks while the file is open for writing would hold it open until
	// the child's exec. Starting the program would fail with ETXTBSY until then.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	Must(tb, os.WriteFile(path, content, 0o755))
}
