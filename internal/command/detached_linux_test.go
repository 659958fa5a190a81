package command_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestMain(m *testing.M) {
	if output := os.Getenv("CLTEST_HOLD"); output != "" {
		held, err := holding(output).Start()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(held.PID())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test kills this process; select{} would be a deadlock
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func holding(output string) command.Detached {
	return command.Detached{Args: []string{"/bin/sh", "-c", "echo executed"}, Output: output}
}

func TestDetachedProgramHasASessionAnOutputAndProcessorsOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output := filepath.Join(dir, "out put")
	if err := os.WriteFile(output, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `echo "$0"; pwd; cat; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL=; cut -d' ' -f6,7 /proc/$$/stat; readlink /proc/$$/fd/3
grep Cpus_allowed_list /proc/$$/status; echo words >&2; exit 3`
	last := lastCPU(t)
	held, err := command.Detached{
		Args: []string{"/bin/sh", "-c", script, "a b"}, Env: []string{"A=1"},
		Dir: dir, Output: output, CPUs: []int{last},
	}.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	exited, err := held.Wait()
	if err != nil || exited != (command.Exited{Code: 3}) {
		t.Errorf("%+v, %v", exited, err)
	}
	got, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("before\na b\n%s\nA=1\n%d 0\nCpus_allowed_list:\t%d\nwords\n", dir, held.PID(), last)
	if string(got) != want {
		t.Errorf("the program says\n%s\nwant\n%s", got, want)
	}
	if after := lastCPU(t); after != last {
		t.Errorf("this process may run on other processors now: the last is %d", after)
	}
}

// lastCPU is the last processor on which this process may run.
func lastCPU(t *testing.T) int {
	t.Helper()
	set := unix.NewCPUSet(1 << 13)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		t.Fatal(err)
	}
	for cpu := 1<<13 - 1; cpu >= 0; cpu-- {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("no processor")
	return 0
}

func TestSignalThatEndsADetachedProgramIsReported(t *testing.T) {
	t.Parallel()
	held, err := command.Detached{Args: []string{"/bin/sh", "-c", "kill -TERM $$"}}.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	if exited, err := held.Wait(); err != nil || exited != (command.Exited{Signal: 15}) {
		t.Errorf("%+v, %v", exited, err)
	}
}

func TestHeldProgramIsNotExecutedUnlessReleased(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(output string){
		"abandoned": func(output string) {
			held, err := holding(output).Start()
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Abandon(); err != nil {
				t.Error(err)
			}
			if !endsSoon(held.PID()) {
				t.Error("the abandoned process goes on")
			}
		},
		"starter killed": func(output string) {
			starter := testenv.Again(t, "CLTEST_HOLD="+output)
			var pid int
			if _, err := fmt.Fscanln(starter, &pid); err != nil {
				t.Fatal(err)
			}
			starter.Kill()
			if err := starter.Wait(); err != nil {
				t.Fatal(err)
			}
			if !endsSoon(pid) {
				t.Error("the held process outlives the process that started it")
			}
		},
	} {
		output := filepath.Join(t.TempDir(), "out")
		drop(output)
		if said, err := os.ReadFile(output); err != nil || len(said) > 0 {
			t.Errorf("%s: %q, %v", name, said, err)
		}
	}
}

func TestDetachedProgramThatCannotRunSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, d := range map[string]command.Detached{
		"empty argument vector": {},
		"nosuch/out":            {Args: []string{"/bin/true"}, Output: filepath.Join(dir, "nosuch/out")},
		"no such file":          {Args: []string{"/bin/true"}, Dir: filepath.Join(dir, "nosuch")},
		"processors 8000":       {Args: []string{"/bin/true"}, CPUs: []int{8000}},
	} {
		if held, err := d.Start(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, held, err)
		}
	}
	output := filepath.Join(dir, "out")
	held, err := command.Detached{Args: []string{"/nonexistent/program"}, Output: output}.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	exited, err := held.Wait()
	said, read := os.ReadFile(output)
	if err != nil || read != nil || !slices.Contains([]int{126, 127}, exited.Code) || !strings.Contains(string(said), "/nonexistent/program") {
		t.Errorf("%+v, %v, %q", exited, err, said)
	}
}
