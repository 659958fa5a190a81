package builtin

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
)

// ExecCommand is the hidden argument with which a program runs [ExecMain].
const ExecCommand = "container-exec"

// maxOptions limits the options of bubblewrap, which refuses more than 9000 (bubblewrap.c: MAX_ARGS).
// A variable of the environment takes three.
const maxOptions = 8000

// Descriptors that ExecMain inherits.
const (
	execProgramFD = 6
	execOrderFD   = 7
)

// passByFile makes this program, in the container, read the environment and the command from a file,
// and execute the command. That takes some milliseconds more than bubblewrap's own options.
func (a *bubblewrapArgs) passByFile(env []string, dir string) (err error) {
	text, err := json.Marshal(enter.Spec{Args: a.command, Env: env, Dir: dir})
	if err != nil {
		return fmt.Errorf("encode the environment: %w", err)
	}
	if a.order, err = memoryFile(text); err != nil {
		return err
	}
	if a.program, err = os.Open("/proc/self/exe"); err != nil {
		return fmt.Errorf("open this program: %w", err)
	}
	a.command = []string{fmt.Sprintf("/proc/self/fd/%d", execProgramFD), ExecCommand}
	return nil
}

// ExecMain executes the command in a container with very many variables. It returns only if that fails,
// with the exit status for the program.
func ExecMain() int {
	for _, fd := range []int{execProgramFD, execOrderFD} {
		unix.CloseOnExec(fd)
	}
	var spec enter.Spec
	if err := json.NewDecoder(os.NewFile(execOrderFD, "order")).Decode(&spec); err != nil || len(spec.Args) == 0 {
		fmt.Fprintln(os.Stderr, ExecCommand+" is started in containers, and not by people")
		return enter.ExitMisused
	}
	program, err := spec.LookPath(spec.Args[0])
	if err == nil {
		err = syscall.Exec(program, spec.Args, spec.Env)
	}
	return enter.NotExecuted(spec.Args[0], err)
}
