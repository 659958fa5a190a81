package nfstest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache/cachetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// What a process of this test program does, other than running tests.
const (
	argRace = "race" // one racer of TestManyProcessesAtOnce, in the directory RACE, called RACER
	envHold = "HOLD" // serves one directory of two, and waits
)

func TestMain(m *testing.M) {
	Main()
	cachetest.Main()
	switch {
	case os.Getenv(envHold) != "":
		os.Args = []string{os.Args[0], "-test.run=^TestServeForKilledTest$", "-test.v"}
	case len(os.Args) > 1 && os.Args[1] == argRace:
		if err := race(os.Getenv("RACE"), os.Getenv("RACER")); err != nil {
			fmt.Fprintln(os.Stderr, "racer", os.Getenv("RACER"), err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// race makes files, takes what others have made, and checks all that it sees.
// What it makes itself it sees at once.
func race(dir, name string) error {
	if err := testenv.Ready(); err != nil {
		return err
	}
	for i := range 5 {
		own := filepath.Join(dir, fmt.Sprintf("%s.%d", name, i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		file := filepath.Join(own, "file")
		if err := os.WriteFile(file, []byte(own[len(dir):]), 0o600); err != nil {
			return err
		}
		published := filepath.Join(dir, "published")
		if err := os.Link(file, filepath.Join(own, "link")); err != nil {
			return err
		}
		err := os.Rename(filepath.Join(own, "link"), published)
		for errors.Is(err, os.ErrNotExist) { // a target that is open got a silly name from the other client
			err = os.Rename(filepath.Join(own, "link"), published)
		}
		if err != nil {
			return err
		}
		got, err := os.ReadFile(published)
		if err == nil && !strings.HasPrefix(string(got), "/racer") {
			return fmt.Errorf("reads %q", got)
		}
		if err != nil && !errors.Is(err, syscall.ESTALE) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if _, err := os.ReadDir(dir); err != nil {
			return err
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != own[len(dir):] {
			return fmt.Errorf("%s reads %q: %w", file, got, err)
		}
		if err := os.RemoveAll(own); err != nil {
			return err
		}
	}
	return nil
}

func TestManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Seed: 7, AcregMax: time.Second, AcdirMax: time.Second})
	s.Inject(Fault{Kind: Slow, Rate: 0.05, Delay: 5 * time.Millisecond})
	testenv.Race(t, 200, argRace, func(i int) []string {
		dir := []string{s.a, s.b}[i%2]
		return []string{"RACE=" + dir, fmt.Sprintf("RACER=racer%d", i)}
	})
	s.noSillyNames("")
	s.lists(s.disk, "published")
	t.Log(s.Counts())
}

func TestOtherUsersOwnWhatTheyMake(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	u := testenv.Researcher(t)
	for _, dir := range []string{s.disk, s.a, s.b} {
		for ; dir != os.TempDir(); dir = filepath.Dir(dir) {
			must(t, os.Chmod(dir, 0o755))
		}
	}
	must(t, os.Mkdir(filepath.Join(s.a, "theirs"), 0o700))
	must(t, os.Chown(filepath.Join(s.a, "theirs"), u.UID, u.GID))
	must(t, os.WriteFile(filepath.Join(s.a, "secret"), nil, 0o600))
	as := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if said := as("cd " + s.b + " && echo text > theirs/x && mkdir theirs/d && ln -s x theirs/l && cat theirs/x"); said != "text\n" {
		t.Errorf("researcher: %s", said)
	}
	for _, name := range []string{"theirs/x", "theirs/d", "theirs/l"} {
		info, err := os.Lstat(filepath.Join(s.disk, name))
		must(t, err)
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != u.UID || int(st.Gid) != u.GID {
			t.Errorf("%s is %d's", name, st.Uid)
		}
	}
	if said := as("cat " + s.b + "/secret; touch " + s.b + "/x"); strings.Count(said, "Permission denied") != 2 {
		t.Errorf("researcher: %s", said)
	}
}

// mounted is whether the kernel has a mount at a directory.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Contains(string(table), " "+dir+" ")
}

// TestServeForKilledTest is what a test program does that is to be killed.
func TestServeForKilledTest(t *testing.T) {
	t.Parallel()
	dirs := filepath.SplitList(os.Getenv(envHold))
	if len(dirs) == 0 {
		t.Skip("runs only where TestKilledTestLeavesNoMount starts it")
	}
	Serve(t, dirs[0], Options{}).Mount(dirs[1])
	fmt.Println("mounted")
	<-t.Context().Done() // which never comes
}

func TestKilledTestLeavesNoMount(t *testing.T) {
	t.Parallel()
	testenv.FUSE(t)
	disk, dir := t.TempDir(), t.TempDir()
	p := testenv.Again(t, envHold+"="+disk+":"+dir)
	lines := bufio.NewScanner(p)
	for lines.Scan() {
		if lines.Text() == "mounted" {
			break
		}
	}
	if !mounted(t, dir) {
		t.Fatal("not mounted")
	}
	f, err := os.Create(filepath.Join(dir, "in use"))
	must(t, err)
	defer f.Close() //nolint:errcheck // its server is gone
	p.Kill()
	must(t, p.Wait())
	eventually(t, func() bool { return !mounted(t, dir) })
}

func TestMountOfAKilledServerIsUnmountedByTheNext(t *testing.T) {
	t.Parallel()
	testenv.FUSE(t)
	disk, dir := t.TempDir(), t.TempDir()
	s := Serve(t, disk, Options{})
	s.Mount(dir)
	must(t, s.cmd.Process.Kill())
	s.end()
	Serve(t, disk, Options{})
	if mounted(t, dir) {
		t.Error("still mounted")
	}
}

func TestEndOfATestUnmounts(t *testing.T) {
	t.Parallel()
	testenv.FUSE(t)
	disk, dir := t.TempDir(), t.TempDir()
	t.Run("a test", func(t *testing.T) {
		s := Serve(t, disk, Options{})
		s.Mount(dir)
		must(t, os.WriteFile(filepath.Join(dir, "x"), []byte("one"), 0o600))
	})
	if mounted(t, dir) {
		t.Error("still mounted")
	}
	got, err := os.ReadFile(filepath.Join(disk, "x"))
	if err != nil || string(got) != "one" {
		t.Errorf("the disk has %q, %v", got, err)
	}
}
