// Package onnode holds the commands of cl-worker that run on a node of a job: exec and probe. The bridge has the program
// cl-worker-node for them. Each run starts that program twice, as its worker and as its container's init, and a program starts
// the sooner the less it imports. So this package imports nothing that only stand-alone workers need, such as the bridge, a database
// or a client of Kubernetes.
package onnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker"
)

// The exit codes of `cl-worker exec` itself. People see them in sacct; a bridge reads the exit record
// instead.
const (
	// ExitSpec means that the specification or the list of members cannot be used.
	ExitSpec       = 120
	exitTaken      = 121
	exitNotBegun   = 122
	exitUnrecorded = 123
	// ExitNoStatus means that the command was not run, or met a limit and ended with 0.
	ExitNoStatus = 124
)

const execHelp = `Runs the prepared bundle that SPEC describes, a spec.json on the shared
disk. The batch script of a bundle's job ends with:

  exec cl-worker exec --submission=ID SPEC

and that of an array, of which each task runs another bundle, with:

  exec cl-worker exec --submission=ID --members=FILE

That of a pack, whose bundles share one job, ends with:

  exec cl-worker exec --submission=ID --members=FILE --side-by-side=N --time=LIMIT

Bundles can join the list of a pack while one of its bundles runs.

It writes exit.json to SPEC's directory once results on the node's own disk are copied to
the shared one. On TERM, INT and HUP it sends TERM to the bundle's command, and
KILL to remaining processes later: after SPEC's kill_seconds, or two seconds. It then
copies results for at most ten seconds. It ignores USR1.

Exit codes, which sacct shows:
  0      the command succeeded
  1-255  the command failed with this exit status, or by signal n with
         128 + n (of which sacct shows n)
  120    SPEC cannot be read, or is of another version or submission; nothing was
         begun
  121    another worker has begun the attempt, or the bridge has fenced it;
         nothing was touched
  122    the attempt could not be begun on the shared disk within a minute;
         nothing was run
  123    the bundle's end could not be recorded within two minutes; if the
         command ended by itself with 0, 1 or 3 to 119, that status instead,
         which the bridge takes from Slurm
  124    the command was not run, or met a limit and ended with 0; the exit
         record has the reason

A pack divides the CPUs and GPUs of its job into N equal places. In each it runs one
bundle of FILE after the other, in the order of the list, and writes what it has to
say about a bundle to that bundle's slurm.out; a bundle that succeeds within a second,
without a warning, has none. It begins a bundle only if the bundle's time limit fits
before SLURM_JOB_END_TIME (since Slurm 23.02; before that the start plus LIMIT), and
none after TERM, INT and HUP, which it passes on to all commands. A text in the file
"stop" of a bundle's directory ends that bundle alone. Its exit codes: 0 if all bundles
that it has begun have their records, whatever their ends are; 120 if FILE cannot be
used; 122 if the shared disk takes no start, and 123 if the end of a bundle
could not be recorded.`

// Runtime returns the runtime for containers of a process.
type Runtime func(p program.Process) (container.Runtime, error)

// Containers is the Runtime of a node: the programs that it has.
func Containers(p program.Process) (container.Runtime, error) {
	return runner.Runner{Env: EngineEnv(p)}, nil
}

// ExecCommand returns the command exec.
func ExecCommand(p program.Process, containers Runtime) *cobra.Command {
	var submission, members string
	var places int
	var limit time.Duration
	exec := &cobra.Command{
		Use:   "exec {SPEC | --members FILE}",
		Short: "Run one prepared bundle inside an allocation",
		Long:  execHelp,
		Args: program.WrongUsage(func(_ *cobra.Command, args []string) error {
			switch {
			case (len(args) == 1) != (members == ""):
				return errors.New("want either SPEC or --members FILE")
			case places < 0 || places > 0 && members == "":
				return errors.New("want --side-by-side 1 or more, with --members FILE")
			case limit < 0 || limit > 0 && places == 0:
				return errors.New("want --time with --side-by-side")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case places > 0:
				return executePack(cmd.Context(), p, containers, members, submission, places, limit)
			case members != "":
				return executeTask(cmd.Context(), p, containers, members, submission)
			}
			return execute(cmd.Context(), p, containers, args[0], submission, "")
		},
	}
	exec.Flags().StringVar(&submission, "submission", "", "refuse SPEC unless it is for the submission of this `ID`")
	exec.Flags().StringVar(&members, "members", "", "run the bundle of this task of an array, by the list of its members in `FILE`")
	exec.Flags().IntVar(&places, "side-by-side", 0, "run all bundles of the list of members, at most `N` at the same time")
	exec.Flags().DurationVar(&limit, "time", 0, "the time limit of the job, if Slurm does not tell its end, as a `DURATION` such as 1h30m")
	return exec
}

// ClusterVariable is Slurm's variable with the name of the job's cluster.
const ClusterVariable = "SLURM_CLUSTER_NAME"

// executeTask is `cl-worker exec --members`: it runs the bundle of one task of an array. What it has to say from then on goes to the
// bundle's own file of output, because all tasks share the array's.
func executeTask(ctx context.Context, p program.Process, containers Runtime, members, submission string) error {
	array, task := p.Getenv("SLURM_ARRAY_JOB_ID"), p.Getenv("SLURM_ARRAY_TASK_ID")
	index, err := strconv.Atoi(task)
	if err != nil || array == "" {
		return &program.Error{Code: ExitSpec, Err: fmt.Errorf("this is no task of an array: SLURM_ARRAY_JOB_ID=%q, SLURM_ARRAY_TASK_ID=%q", array, task)}
	}
	attempt, of, err := spool.ReadMember(members, index)
	if err == nil && submission != "" && of != submission {
		err = fmt.Errorf("%s is of submission %s, and this job is of submission %s", members, of, submission)
	}
	if err != nil {
		return &program.Error{Code: ExitSpec, Err: err}
	}
	if err := writeTo(attempt.OutputPath()); err != nil {
		p.Log(false).WarnContext(ctx, "cannot write to the bundle's own file of output", slog.Any("error", err))
	}
	return execute(ctx, p, containers, attempt.SpecPath(), submission, array+"_"+task)
}

// executePack is `cl-worker exec --members --side-by-side`: it runs all bundles of a pack.
func executePack(ctx context.Context, p program.Process, containers Runtime, file, submission string, places int, limit time.Duration) error {
	members, of, err := spool.ReadMembers(file)
	switch task := p.Getenv("SLURM_ARRAY_TASK_ID"); {
	case err != nil:
	case task != "":
		err = fmt.Errorf("a pack is no task of an array: SLURM_ARRAY_TASK_ID=%q", task)
	case submission != "" && of != submission:
		err = fmt.Errorf("%s is of submission %s, and this job is of submission %s", file, of, submission)
	}
	if err != nil {
		return &program.Error{Code: ExitSpec, Err: err}
	}
	ctx, stop := heedSignals(ctx)
	defer stop()
	w, err := newWorker(p, containers, submission)
	if err != nil {
		return err
	}
	pack := worker.Pack{Worker: w, Places: places, End: jobEnd(p, limit), Joining: spool.SlotsOf(file, of), LogTo: func(output io.Writer) *slog.Logger {
		own := p
		own.Stderr = output
		return own.Log(false)
	}}
	if r, ok := w.Containers.(runner.Runner); ok {
		images := &runner.Images{}
		pack.Containers = func() worker.PlaceRuntime { return runner.NewPlace(r, images) }
	}
	if err := pack.Run(ctx, members); err != nil {
		return &program.Error{Code: exitCode(spool.Exit{}, err), Err: err}
	}
	return nil
}

// jobEnd returns the time at which Slurm ends this job; zero for no limit. Before 23.02 Slurm does not tell, and the job's time
// limit counts from now.
func jobEnd(p program.Process, limit time.Duration) time.Time {
	seconds, err := strconv.ParseInt(p.Getenv("SLURM_JOB_END_TIME"), 10, 64)
	switch {
	case err == nil && seconds > 0:
		return time.Unix(seconds, 0)
	case limit > 0:
		return p.Now().Add(limit)
	}
	return time.Time{}
}

// writeTo appends what this program and its children write to a file.
func writeTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer func() { _ = f.Close() }() // its copies stay
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return fmt.Errorf("redirect output: %w", err)
		}
	}
	return nil
}

// execute is `cl-worker exec`. task is the job's name as a task of an array; empty if it is none.
func execute(ctx context.Context, p program.Process, containers Runtime, spec, submission, task string) error {
	ctx, stop := heedSignals(ctx)
	defer stop()
	w, err := newWorker(p, containers, submission)
	if err != nil {
		return err
	}
	w.ArrayTask = task
	exit, err := w.Run(ctx, spec)
	if code := exitCode(exit, err); code != 0 {
		return &program.Error{Code: code, Err: outcome(exit, err)}
	}
	return nil
}

// heedSignals returns a context that ends with the first signal that ends the job.
func heedSignals(ctx context.Context) (_ context.Context, stop func()) {
	// A second TERM must not end the worker before it has recorded the end that the
	// first one caused; further signals are therefore ignored.
	ctx, stopSignals := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	// USR1 is handled, because the command would inherit an ignored signal.
	warnings := make(chan os.Signal, 1)
	signal.Notify(warnings, syscall.SIGUSR1)
	return ctx, func() {
		signal.Stop(warnings)
		stopSignals()
	}
}

// newWorker returns the worker of this job.
func newWorker(p program.Process, containers Runtime, submission string) (worker.Worker, error) {
	node, err := nodeName(p)
	if err != nil {
		return worker.Worker{}, err
	}
	runtime, err := containers(p)
	if err != nil {
		return worker.Worker{}, err
	}
	return worker.Worker{
		Node:           node,
		Submission:     submission,
		Job:            p.Getenv("SLURM_JOB_ID"),
		SLUID:          p.Getenv("SLURM_JOB_SLUID"),
		Restart:        p.Getenv("SLURM_RESTART_COUNT"),
		JobGPUs:        p.Getenv("SLURM_JOB_GPUS"),
		VisibleDevices: p.Getenv("CUDA_VISIBLE_DEVICES"),
		Cluster:        p.Getenv(ClusterVariable),
		Version:        program.Build(),
		Containers:     runtime,
		Log:            p.Log(false),
	}, nil
}

// nodeName returns the name of this node. In an allocation it is Slurm's NodeName, by which the bridge
// names the node to Slurm; it may differ from the host's name (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
func nodeName(p program.Process) (string, error) {
	if name := p.Getenv("SLURMD_NODENAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host: %w", err)
	}
	return name, nil
}

// EngineEnv returns the environment variables by which docker and podman find their engine and their own
// files.
func EngineEnv(p program.Process) []string {
	env := []string{"PATH=" + cmp.Or(p.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")}
	for _, name := range []string{
		"HOME", "USER", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
		"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
		"CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE",
	} {
		if value := p.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// exitCode returns the exit code for the end of a bundle.
func exitCode(exit spool.Exit, err error) int {
	switch {
	case errors.Is(err, worker.ErrSpec):
		return ExitSpec
	case errors.Is(err, worker.ErrTaken):
		return exitTaken
	case errors.Is(err, worker.ErrNotBegun), errors.Is(err, worker.ErrSickNode):
		return exitNotBegun
	case errors.Is(err, worker.ErrUnrecorded):
		return unrecordedCode(exit)
	case err != nil:
		return program.ExitFailure
	case exit.Cause == spool.CauseSucceeded:
		return 0
	case exit.ExitCode != nil && *exit.ExitCode > 0:
		return *exit.ExitCode
	}
	return ExitNoStatus
}

// unrecordedCode returns the exit code for an end that could not be recorded: the command's status, if
// the command ended by itself. The bridge then reads the status from Slurm. A 0 counts only if the results
// are not lost.
func unrecordedCode(exit spool.Exit) int {
	switch {
	case exit.ExitCode == nil || !spool.IsCommandStatus(*exit.ExitCode):
	case exit.Cause == spool.CauseSucceeded, *exit.ExitCode != 0 && exit.Cause != spool.CauseLimit && !exit.Terminated:
		return *exit.ExitCode
	}
	return exitUnrecorded
}

// outcome returns the message for standard error, which becomes the job's output; nil if the exit status
// is enough.
func outcome(exit spool.Exit, err error) error {
	if err == nil && exit.Failure != "" {
		err = errors.New(exit.Failure)
	}
	return err
}
