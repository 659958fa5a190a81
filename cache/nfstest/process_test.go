package nfstest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache/cachetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// envHold makes this program serve the first of two directories, mounted at the second, and wait.
const envHold = "HOLD"

func TestMain(m *testing.M) {
	Main()
	cachetest.Main()
	if os.Getenv(envHold) != "" {
		os.Args = []string{os.Args[0], "-test.run=^TestServeForKilledTest$", "-test.v"}
	}
	code := m.Run()
	bridgeProgram.Remove()
	workerProgram.Remove()
	os.Exit(code)
}

// mounted reports whether the kernel has a mount at a directory.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Contains(string(table), " "+dir+" ")
}

// TestServeForKilledTest is the body of a test program that is to be killed.
func TestServeForKilledTest(t *testing.T) {
	t.Parallel()
	dirs := filepath.SplitList(os.Getenv(envHold))
	if len(dirs) == 0 {
		t.Skip("runs only where TestKilledTestLeavesNoMount starts it")
	}
	Serve(t, dirs[0], Options{}).Mount(dirs[1])
	fmt.Println("mounted")
	<-t.Context().Done() // never
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
	defer f.Close()
	p.Kill()
	must(t, p.Wait())
	testenv.Await(t, "it is unmounted", func() bool { return !mounted(t, dir) })
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
