package nfstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache/cachetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// envHold makes this program serve the first of two directories, mounted at the
// second, and wait.
const envHold = "HOLD"

func TestMain(m *testing.M) {
	Main()
	cachetest.Main()
	if os.Getenv(envHold) != "" {
		os.Args = []string{os.Args[0], "-test.run=^TestServeForKilledTest$", "-test.v"}
	}
	os.Exit(m.Run())
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
