package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func local(s *spool.Spec) { s.WorkingDirDisk = spool.WorkingDirLocal }

// workDirOf returns the host's directory that is a container's working directory.
func workDirOf(c container.Container) string {
	for _, b := range c.Binds {
		if b.Target == c.Dir {
			return b.Source
		}
	}
	return ""
}

// writes runs a container whose command writes a file, and then calls end.
func writes(t *testing.T, name, content string, end runner) runner {
	t.Helper()
	return func(ctx context.Context, c container.Container) (container.Exit, error) {
		if err := os.WriteFile(filepath.Join(workDirOf(c), name), []byte(content), 0o600); err != nil {
			t.Error(err)
		}
		return end(ctx, c)
	}
}

func TestLocalWorkingDirectoryLiesInTheScratchAndGoesWithIt(t *testing.T) {
	t.Parallel()
	var s site
	works := func(_ context.Context, c container.Container) (container.Exit, error) {
		dir := workDirOf(c)
		if !strings.HasPrefix(dir, c.PrivateDir+"/") || !strings.HasPrefix(c.PrivateDir, s.spec.Scratch+"/") {
			t.Errorf("works in %s, with the scratch %s", dir, c.PrivateDir)
		}
		for _, b := range c.Binds {
			if b.Source == s.spec.RunDir {
				t.Error("the container sees the run directory")
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, "result"), []byte("x"), 0o600))
		_, err := c.Stdout.WriteString("said\n")
		must(t, err)
		if _, err := os.Stat(filepath.Join(s.spec.RunDir, "result")); !os.IsNotExist(err) {
			t.Errorf("on the shared disk already: %v", err)
		}
		c.OnStart(container.Running{PID: 1})
		synctest.Wait() // the worker has written the status
		return container.Exit{}, nil
	}
	onSite(t, works, local, func(t *testing.T, made site, w Worker) {
		s = made
		e := s.run(t, w)
		for name, want := range map[string]string{"result": "x", "stdout": "said\n", "stderr": ""} {
			if got, err := os.ReadFile(filepath.Join(s.spec.RunDir, name)); err != nil || string(got) != want {
				t.Errorf("%s holds %q, %v", name, got, err)
			}
		}
		if left, err := os.ReadDir(s.spec.Scratch); err != nil || len(left) > 0 {
			t.Errorf("left in the scratch directory: %v, %v", left, err)
		}
		if e.Cause != spool.CauseSucceeded || e.Usage.DiskBytes == 0 {
			t.Errorf("recorded %+v", e)
		}
		if status, err := s.attempt.ReadStatus(); err != nil || status.Token != e.Token {
			t.Errorf("status %+v, %v", status, err)
		}
	})
}

func TestDiskLimitIsWatchedOnTheNodesDisk(t *testing.T) {
	t.Parallel()
	onSite(t, writes(t, "result", "eleven char", obeys), func(s *spool.Spec) { s.WorkingDirDisk, s.DiskBytes = spool.WorkingDirLocal, 100 }, func(t *testing.T, s site, w Worker) {
		s.write(t, "of another", strings.Repeat("x", 1<<20))
		s.write(t, "stdout", "said")
		links := len(outputDir(bundle)+"/stdout") + len(outputDir(bundle)+"/stderr")
		least := int64(links + len("said") + len("eleven char"))
		if e := s.run(t, w); e.Cause != spool.CauseLimit || e.Usage.DiskBytes < least || e.Usage.DiskBytes > 1<<20 {
			t.Errorf("recorded %+v", e)
		}
	})
}

// A disk may have lost data whose flush failed.
func TestResultsAreFlushedBeforeTheEndIsRecorded(t *testing.T) {
	t.Parallel()
	onSite(t, writes(t, "result", "x", succeeds), local, func(t *testing.T, s site, w Worker) {
		var mu sync.Mutex
		flushed, failed := map[string]bool{}, false
		w.sync = func(f *os.File) error {
			mu.Lock()
			defer mu.Unlock()
			if _, err := s.attempt.ReadExit(); !errors.Is(err, spool.ErrNone) {
				t.Errorf("flushed %s, the exit record: %v", f.Name(), err)
			}
			info, err := f.Stat()
			must(t, err)
			if info.Mode().IsRegular() && !failed {
				failed = true
				return syscall.EIO
			}
			flushed[info.Mode().Type().String()] = true
			return nil
		}
		if e := s.run(t, w); e.Cause != spool.CauseSucceeded || !failed || len(flushed) != 2 {
			t.Errorf("recorded %+v; flushed %v", e, flushed)
		}
		if got, err := os.ReadFile(filepath.Join(s.spec.RunDir, "result")); err != nil || string(got) != "x" {
			t.Errorf("the result is %q, %v", got, err)
		}
	})
}

// inTheWay keeps a file from being copied.
func inTheWay(t *testing.T, s site, name string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(s.spec.RunDir, name, "x"), 0o700))
}

func TestCopyIsTriedAgainWhileTheDiskDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	onSite(t, writes(t, "result", "x", succeeds), local, func(t *testing.T, s site, w Worker) {
		inTheWay(t, s, "result")
		go func() {
			time.Sleep(30 * time.Second)
			if _, err := s.attempt.ReadExit(); err == nil {
				t.Error("the end was recorded before the results were there")
			}
			if status, err := s.attempt.ReadStatus(); err != nil || status.Stage != spool.StageCopying {
				t.Errorf("status %+v, %v", status, err)
			}
			if err := os.RemoveAll(filepath.Join(s.spec.RunDir, "result")); err != nil {
				t.Error(err)
			}
		}()
		if e := s.run(t, w); e.Cause != spool.CauseSucceeded || !e.CommandEnded.Equal(e.CommandStarted) {
			t.Errorf("recorded %+v", e)
		}
		if left, err := os.ReadDir(s.spec.RunDir); err != nil || len(left) != 3 {
			t.Errorf("the run directory holds %v, %v", left, err)
		}
	})
}

func TestResultsThatCannotBeCopiedAreSaidToBeLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     runner
		told    bool
		cause   spool.Cause
		failure string
		takes   time.Duration
	}{
		"command succeeded": {succeeds, false, spool.CausePlatform, "Only 1 of the results could be copied from the disk of node n1", 2 * time.Minute},
		"command failed": {
			func(context.Context, container.Container) (container.Exit, error) {
				return container.Exit{Code: 3}, nil
			},
			false, spool.CauseUser, "Exit code 3. Only 1 of the results could be copied from the disk of node n1", 2 * time.Minute,
		},
		"terminated during the copy": {succeeds, true, spool.CausePlatform, "Only 1 of the results could be copied from the disk of node n1: the job was terminated.", 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSite(t, writes(t, "result", "x", writes(t, "whole", "y", c.end)), local, func(t *testing.T, s site, w Worker) {
				inTheWay(t, s, "result")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if c.told {
					time.AfterFunc(5*time.Second, stop)
				}
				began := time.Now()
				_, err := w.Run(ctx, s.attempt.SpecPath())
				must(t, err)
				e := s.exit(t)
				if e.Cause != c.cause || !strings.HasPrefix(e.Failure, c.failure) || e.Terminated != c.told || e.ExitCode == nil {
					t.Errorf("recorded %+v", e)
				}
				if took := time.Since(began); took < c.takes || took > c.takes+3*time.Second {
					t.Errorf("gave up after %s, want %s", took, c.takes)
				}
				if got, err := os.ReadFile(filepath.Join(s.spec.RunDir, "whole")); err != nil || string(got) != "y" {
					t.Errorf("what can be copied holds %q, %v", got, err)
				}
			})
		})
	}
}

// The failure of a copy contains its temporary name.
func TestIncompleteCopyHasACopysName(t *testing.T) {
	t.Parallel()
	onSite(t, writes(t, "result", "x", succeeds), local, func(t *testing.T, s site, w Worker) {
		inTheWay(t, s, "result")
		e := s.run(t, w)
		name := regexp.MustCompile(`\.copying\S+`).FindString(e.Failure)
		if !spool.IsCopyName(name) || !strings.Contains(name, e.Token) {
			t.Errorf("copied as %q: %+v", name, e)
		}
	})
}

// It runs as an ordinary user, because closed files do not stop root.
// Each level is reached by its path, so a path needs a limit.
func TestWorkingDirectoryThatIsTooDeepIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	level := strings.Repeat("d", 250)
	deep := func(_ context.Context, c container.Container) (container.Exit, error) {
		must(t, os.WriteFile(filepath.Join(workDirOf(c), "result"), []byte("x"), 0o600))
		at, err := os.OpenRoot(workDirOf(c))
		must(t, err)
		for range 20 {
			must(t, at.Mkdir(level, 0o700))
			below, err := at.OpenRoot(level)
			must(t, err)
			must(t, at.Close())
			at = below
		}
		must(t, at.Close())
		return container.Exit{}, nil
	}
	onSite(t, deep, local, func(t *testing.T, s site, w Worker) {
		t.Cleanup(func() { must(t, filetree.Remove(s.spec.RunDir)) })
		began := time.Now()
		e := s.run(t, w)
		const want = "directories are nested too deeply, with a path of 4266 bytes, where 4095 are the most: dd"
		if e.Cause == spool.CauseSucceeded || !strings.Contains(e.Failure, want) {
			t.Errorf("recorded %+v", e)
		}
		if took := time.Since(began); took >= copyPause {
			t.Errorf("tried for %v", took)
		}
		if got, err := os.ReadFile(filepath.Join(s.spec.RunDir, "result")); err != nil || string(got) != "x" {
			t.Errorf("the file at the top: %q, %v", got, err)
		}
	})
}

func TestCopyIsFaithful(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	from, to := t.TempDir(), t.TempDir()
	at := func(dir, name string) string { return filepath.Join(dir, name) }
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	must(t, os.MkdirAll(at(from, "a/b"), 0o750))
	must(t, os.Chmod(at(from, "a/b"), 0o750)) // regardless of the umask
	must(t, os.WriteFile(at(from, "a/b/file"), []byte("content"), 0o640))
	must(t, os.Link(at(from, "a/b/file"), at(from, "hard")))
	must(t, os.Symlink("/etc/passwd", at(from, "link")))
	must(t, os.Symlink("loop", at(from, "loop")))
	must(t, os.WriteFile(at(from, "new\nline \xff"), nil, 0o600))
	must(t, syscall.Mkfifo(at(from, "pipe"), 0o600))
	must(t, os.WriteFile(at(from, "skipped"), []byte("x"), 0o600))
	must(t, os.WriteFile(at(from, "closed"), []byte("closed"), 0))
	holes, err := os.Create(at(from, "holes"))
	must(t, err)
	_, err = holes.WriteAt([]byte("end"), 1<<30)
	must(t, err)
	must(t, holes.Truncate(1<<31))
	must(t, holes.Close())
	must(t, os.WriteFile(at(to, "stdout"), []byte("said"), 0o600)) // becomes a directory
	must(t, os.Mkdir(at(from, "stdout"), 0o700))
	must(t, os.WriteFile(at(from, "stdout/in"), []byte("in"), 0o600))
	must(t, os.WriteFile(at(to, "stderr"), []byte("stays"), 0o600))
	must(t, os.Chtimes(at(from, "a/b/file"), when, when))
	must(t, os.Chtimes(at(from, "a/b"), when, when))
	must(t, os.Chmod(at(from, "a"), 0o100))

	c := copier{skip: func(_ *os.Root, name string) bool { return name == "skipped" }, temporary: ".copying"}
	for range 2 { // the second finds everything copied
		must(t, c.tryFor(t.Context(), from, to, 0, func(error) {}))
		if c.files.Load() != 6 || c.bytes.Load() != 1<<31+int64(len("content"+"closed"+"in")) {
			t.Errorf("copied %d files, %d bytes", c.files.Load(), c.bytes.Load())
		}
	}
	for name, want := range map[string]string{"a/b/file": "content", "hard": "content", "closed": "closed", "stdout/in": "in", "stderr": "stays", "new\nline \xff": ""} {
		if got, err := os.ReadFile(at(to, name)); err != nil || string(got) != want {
			t.Errorf("%q holds %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"link": "/etc/passwd", "loop": "loop"} {
		if got, err := os.Readlink(at(to, name)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"pipe", "skipped"} {
		if _, err := os.Lstat(at(to, name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var st, first, second syscall.Stat_t
	must(t, syscall.Stat(at(to, "holes"), &st))
	if st.Size != 1<<31 || st.Blocks*512 > 1<<20 {
		t.Errorf("the file with holes takes %d bytes of %d", st.Blocks*512, st.Size)
	}
	must(t, syscall.Stat(at(to, "a/b/file"), &first))
	must(t, syscall.Stat(at(to, "hard"), &second))
	if first.Ino != second.Ino || first.Mode&0o777 != 0o640 || first.Mtim.Sec != when.Unix() {
		t.Errorf("the hard link is %+v, the file %+v", second, first)
	}
	if info, err := os.Stat(at(to, "a/b")); err != nil || info.Mode().Perm() != 0o750 || !info.ModTime().Equal(when) {
		t.Errorf("the directory is %v of %v, %v", info.Mode(), info.ModTime(), err)
	}
	if left, err := filepath.Glob(at(to, ".copying*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A link in place of an output file would let the worker write elsewhere.
func TestOutputFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	must(t, os.WriteFile(other, nil, 0o600))
	must(t, os.Symlink(other, filepath.Join(dir, "stdout")))
	if f, err := openOutput(dir, "stdout"); err == nil {
		t.Errorf("%s was opened", f.Name())
	}
	f, err := openOutput(dir, "stderr")
	must(t, err)
	_, err = f.WriteString("text\n")
	must(t, err)
	if end := readTail(f); end != "text\n" {
		t.Errorf("the end is %q", end)
	}
	must(t, f.Close())
}
