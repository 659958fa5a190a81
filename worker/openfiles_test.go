package worker

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// holderOf is the environment variable of a child that holds files without names, in this directory.
const holderOf = "CLTEST_HOLDS_FILES"

// The sizes of the child's files.
const (
	heldOpen   = 3 << 20
	heldMapped = 5 << 20
	heldMemory = 7 << 20
)

func init() { //nolint:gochecknoinits // the test binary is the child, too
	if dir := os.Getenv(holderOf); dir != "" {
		holdFiles(dir)
	}
}

// holdFiles holds an open file, a mapped one that is closed, and one in memory, until the end of the
// standard input.
func holdFiles(dir string) {
	open, err := os.Create(filepath.Join(dir, "open"))
	check(err)
	_, err = open.Write(make([]byte, heldOpen))
	check(err)
	check(os.Remove(open.Name()))
	mapped, err := os.Create(filepath.Join(dir, "mapped"))
	check(err)
	check(mapped.Truncate(heldMapped))
	_, err = unix.Mmap(int(mapped.Fd()), 0, heldMapped, unix.PROT_READ, unix.MAP_SHARED)
	check(err)
	check(mapped.Close())
	check(os.Remove(mapped.Name()))
	memory, err := unix.MemfdCreate("x", 0)
	check(err)
	_, err = unix.Write(memory, make([]byte, heldMemory))
	check(err)
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(open)
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func TestFilesWithoutNamesCount(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	dir := t.TempDir()
	// The child's parent stands for the container's init.
	cmd := exec.Command("sh", "-c", `"$0"; true`, "/proc/self/exe")
	self, err := os.Executable()
	must(t, err)
	cmd.Args[3] = self
	cmd.Env = append(os.Environ(), holderOf+"="+dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if got := diskUnlinked("/proc", cmd.Process.Pid, dir); got < heldOpen+heldMapped || got > heldOpen+heldMapped+1<<20 {
		t.Errorf("on the disk: %d", got)
	}
	if got := memoryUnlinked("/proc", cmd.Process.Pid); got < heldMemory || got > heldMemory+1<<20 {
		t.Errorf("in memory: %d", got)
	}
	must(t, stdin.Close())
	must(t, cmd.Wait())
}
