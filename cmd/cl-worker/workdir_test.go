package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func onNodesDisk(_ string, s *spool.Spec) { s.WorkingDirDisk = spool.WorkingDirLocal }

// device is that on which a file of this host lies.
func device(t *testing.T, path string) string {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return strconv.FormatUint(st.Dev, 10)
}

// In this test the run directory is a disk of its own, in place of the shared one.
func TestTMPDIRLiesOnTheNodesOwnDisk(t *testing.T) {
	t.Parallel()
	x := prepare(t, `stat -c %d "$TMPDIR" .; echo x > "$TMPDIR/file" && stat -c %a "$TMPDIR"; ls -A "$TMPDIR"; (umask 0; mkdir "$TMPDIR/closed"; chmod 0 "$TMPDIR/closed")`, nil)
	testenv.SmallDisk(t, x.spec.RunDir, "size=4m,mode=0777")
	scratch, shared := device(t, x.spec.Scratch), device(t, x.spec.RunDir)
	if scratch == shared {
		t.Fatal("the test's two disks are one")
	}
	if got, want := x.succeed(), scratch+"\n"+shared+"\n1777\nfile\n"; got != want {
		t.Errorf("output %q, want %q; stderr %q", got, want, x.file("stderr"))
	}
	if left, err := os.ReadDir(x.spec.RunDir); err != nil || len(left) != 2 {
		t.Errorf("the run directory holds %v, %v", left, err)
	}
}

func TestLocalWorkingDirectoryComesHomeWithTheEnd(t *testing.T) {
	t.Parallel()
	x := prepare(t, `stat -c %d . "$TMPDIR"; echo err >&2; mkdir -p a/b; echo deep > a/b/c; ln a/b/c hard; ln -s a/b/c soft
		echo x > program; chmod 700 program; mkfifo pipe; echo secret > closed; chmod 0 closed; mkdir shut; echo in > shut/in; chmod 0 shut; cat in`,
		func(dir string, s *spool.Spec) {
			s.WorkingDirDisk = spool.WorkingDirLocal
			must(t, os.MkdirAll(filepath.Join(dir, "cache"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "cache", "data"), []byte("the data\n"), 0o644))
			s.Dependencies = []spool.Dependency{{ChildPath: "in", Source: filepath.Join(dir, "cache", "data")}}
		})
	testenv.SmallDisk(t, x.spec.RunDir, "size=4m,mode=0777")
	scratch := device(t, x.spec.Scratch)
	if got, want := x.succeed(), scratch+"\n"+scratch+"\nthe data\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"stderr": "err\n", "a/b/c": "deep\n", "hard": "deep\n", "soft": "deep\n", "program": "x\n", "closed": "secret\n", "shut/in": "in\n", "pipe": "",
	} {
		if got := x.file(name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"stdout", "stderr"} {
		if info, err := os.Lstat(filepath.Join(x.spec.RunDir, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(x.spec.RunDir, "program")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the program is %v, %v", info, err)
	}
	if link, err := os.Readlink(filepath.Join(x.spec.RunDir, "in")); err != nil || link != "/"+bundle+"_dependencies/in" {
		t.Errorf("the dependency's link leads to %q, %v", link, err)
	}
}

func TestOutputOfALocalWorkingDirectoryIsLive(t *testing.T) {
	t.Parallel()
	x := prepare(t, `echo ready; echo mine > result; echo more >> stdout; while [ ! -e go ] && sleep 0.02; do cat "$TMPDIR/go" 2>/dev/null && break; done; cat stdout > copy`, onNodesDisk).start()
	var output string // the line that it printed goes through a pipe, and the other into the file, so either may be the first
	x.await("what it has printed and written to stdout is seen", func() bool {
		output = x.file("stdout")
		return output == "ready\nmore\n" || output == "more\nready\n"
	})
	if got := x.file("result"); got != "" {
		t.Errorf("%q is on the shared disk already", got)
	}
	temp, err := filepath.Glob(filepath.Join(x.spec.Scratch, "*", "tmp"))
	if err != nil || len(temp) != 1 {
		t.Fatal(temp, err)
	}
	must(t, os.WriteFile(filepath.Join(temp[0], "go"), nil, 0o644))
	if code, exit := x.wait(); code != 0 {
		t.Errorf("exit code %d, %+v", code, exit)
	}
	if x.file("result") != "mine\n" || x.file("copy") != output {
		t.Errorf("result %q, copy %q", x.file("result"), x.file("copy"))
	}
}

func TestWhatAnEndedCommandHadWrittenLocallyComesHome(t *testing.T) {
	t.Parallel()
	t.Run("terminated", func(t *testing.T) {
		t.Parallel()
		x := prepare(t, `trap 'echo saved > partial; exit 9' TERM; echo ready; while :; do sleep 0.05; done`, onNodesDisk).start()
		x.await("the command has begun", func() bool { return strings.Contains(x.file("stdout"), "ready") })
		must(t, x.cmd.Process.Signal(syscall.SIGTERM))
		if code, exit := x.wait(); code != 9 || !exit.Terminated || x.file("partial") != "saved\n" {
			t.Errorf("exit code %d, %+v, partial result %q", code, exit, x.file("partial"))
		}
	})
	t.Run("out of time", func(t *testing.T) {
		t.Parallel()
		x := prepare(t, "echo partial > result; sleep 60", func(_ string, s *spool.Spec) { s.WorkingDirDisk, s.Seconds = spool.WorkingDirLocal, 3 })
		if code, exit := x.start().wait(); code != 143 || exit.Cause != spool.CauseLimit || exit.Terminated || x.file("result") != "partial\n" {
			t.Errorf("exit code %d, %+v, result %q", code, exit, x.file("result"))
		}
	})
}
