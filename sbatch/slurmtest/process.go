package slurmtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// process is a running batch script.
type process struct {
	cmd    *exec.Cmd
	output *os.File
}

// carryOut executes an order to a node.
func (k *Cluster) carryOut(o Order) {
	id := launchID{o.Job, o.Restart}
	if o.Kind == Start {
		k.startScript(id, o.Launch)
		return
	}
	p := k.processes[id]
	if p == nil {
		return
	}
	switch o.Kind {
	case Terminate:
		// Of a job's processes only the batch script gets TERM (proctrack/cgroup).
		at := time.Now().Format("2006-01-02T15:04:05")
		_, _ = fmt.Fprintf(p.output, "slurmstepd-%s: error: *** JOB %s ON %s CANCELLED AT %s ***\n", o.Node, o.Number, o.Node, at) // the job goes on without this line
		_ = p.cmd.Process.Signal(syscall.SIGTERM)                                                                                  // it may have ended
	case Suspend:
		p.signalAll(syscall.SIGSTOP)
	case Resume:
		p.signalAll(syscall.SIGCONT)
	case Start, Kill:
		p.kill()
	}
}

func (p *process) kill() { p.signalAll(syscall.SIGKILL) }

// signalAll sends a signal to a job's processes: the session of its batch script, and all descendants. It looks for those of
// other sessions first, because they are no descendants any more once their parent has ended.
func (p *process) signalAll(signal syscall.Signal) {
	all := descendants(p.cmd.Process.Pid)
	_ = syscall.Kill(-p.cmd.Process.Pid, signal) // it may have ended
	for _, pid := range append(all, descendants(p.cmd.Process.Pid)...) {
		_ = syscall.Kill(pid, signal) // it may have ended
	}
}

// descendants returns the processes of a session, and their descendants.
func descendants(session int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []procstat.Stat
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := procstat.Read(pid); err == nil { // else it has ended
			all = append(all, s)
		}
	}
	var found []int
	of := map[int]bool{session: true}
	for before := -1; before < len(found); { // a parent's number may be above its child's
		before = len(found)
		for _, s := range all {
			if !of[s.PID] && (of[s.Parent] || s.Session == session) {
				of[s.PID] = true
				found = append(found, s.PID)
			}
		}
	}
	return found
}

// startScript runs a job's batch script. A script that cannot be run ends at once.
func (k *Cluster) startScript(id launchID, l Launch) {
	p, err := k.execute(l)
	if err != nil {
		end := End{Code: 2} // slurmstepd could not run the script
		if errors.Is(err, errOutput) {
			end = End{Signal: 53} // the script has no output
		}
		k.background.Go(func() { k.Do(func(now time.Time, c *Controller) { c.Ended(now, l.Job, l.Restart, end) }) })
		return
	}
	k.processes[id] = p
	k.background.Go(func() {
		end := p.wait()
		k.Do(func(now time.Time, c *Controller) {
			delete(k.processes, id)
			c.Ended(now, l.Job, l.Restart, end)
		})
	})
}

var errOutput = errors.New("cannot open the output")

// execute starts a job's batch script.
func (k *Cluster) execute(l Launch) (*process, error) {
	script := filepath.Join(k.dir, fmt.Sprintf("job%s.%d", l.Job, l.Restart))
	// No program that another goroutine starts now may inherit the open file: it would keep the file open for
	// writing, and the script could not be run (ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(script, []byte(l.Request.Script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("keep script: %w", err)
	}
	dir, moved := l.Request.Dir, ""
	if _, err := os.Stat(dir); err != nil {
		moved = fmt.Sprintf("slurmstepd-%s: error: couldn't chdir to `%s': No such file or directory: going to /tmp instead\n", l.Node, dir)
		dir = "/tmp"
	}
	output, err := os.OpenFile(cmp.Or(l.outputPath(), filepath.Join(k.dir, "output")), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOutput, err)
	}
	_, _ = fmt.Fprint(output, moved) // the job goes on without this line
	cmd := exec.Command(script)
	cmd.Dir, cmd.Env = dir, k.environment(l)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = output.Close() // nothing was written
		return nil, fmt.Errorf("run script: %w", err)
	}
	return &process{cmd: cmd, output: output}, nil
}

// outputPath returns the path of a launch's output (sbatch(1): filename pattern).
func (l Launch) outputPath() string {
	if l.Request.OutputPattern == "" {
		return l.Request.Output
	}
	array, index, isTask := l.Job.ArrayTask()
	if !isTask {
		index = 1<<32 - 2 // NO_VAL
	}
	return strings.NewReplacer("%%", "%", "%A", array.String(), "%a", strconv.Itoa(index), "%j", l.Number.String(), "%x", l.Request.Name).
		Replace(l.Request.OutputPattern)
}

// wait waits for the script's end, and then ends the processes that it left.
func (p *process) wait() End {
	err := p.cmd.Wait()
	p.kill()
	_ = p.output.Close() // it was the script's
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return End{}
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return End{Signal: int(status.Signal())}
	}
	return End{Code: exit.ExitCode()}
}

// environment returns the environment of a batch script. It has only variables that tests and workers read,
// and nothing of a login shell.
func (k *Cluster) environment(l Launch) []string {
	r, id, user := l.Request, l.Number.String(), k.site.user(l.UID).Name
	env := []string{
		"PATH=" + sbatch.DefaultPath, "LANG=C.UTF-8", "HOME=" + k.dir, "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh",
	}
	if r.LoginEnvironment {
		env = append(env, "SLURM_GET_USER_ENV=1")
	} else {
		env = append(env, r.Env...)
	}
	env = append(env,
		"TMPDIR=/tmp", "ENVIRONMENT=BATCH", "HOSTNAME="+l.Node,
		"SLURM_JOB_ID="+id, "SLURM_JOB_NAME="+r.Name, "SLURM_JOB_ACCOUNT="+r.Account, "SLURM_JOB_PARTITION="+r.Partition,
		"SLURM_JOB_NODELIST="+l.Node, "SLURMD_NODENAME="+l.Node,
	)
	add := func(name string, n int64) {
		if n > 0 {
			env = append(env, name+"="+strconv.FormatInt(n, 10))
		}
	}
	if array, index, isTask := l.Job.ArrayTask(); isTask {
		env = append(env, "SLURM_ARRAY_JOB_ID="+array.String(), "SLURM_ARRAY_TASK_ID="+strconv.Itoa(index), "SLURM_ARRAY_TASK_COUNT="+strconv.Itoa(r.Tasks))
	}
	add("SLURM_CPUS_PER_TASK", r.CPUs)
	add("SLURM_MEM_PER_NODE", r.MemoryMiB)
	add("SLURM_RESTART_COUNT", int64(l.Restart))
	if len(l.GPUs) > 0 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(l.GPUs), " ", ","), "[]")
		env = append(env, "SLURM_JOB_GPUS="+list, "CUDA_VISIBLE_DEVICES="+list)
	}
	return env
}
