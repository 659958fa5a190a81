package slurmtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a batch script that runs.
type process struct {
	cmd    *exec.Cmd
	output *os.File
}

// carryOut does what a node is told to do.
func (k *Cluster) carryOut(o Order) {
	id := launchID{o.Job, o.Restart}
	if o.Kind == Start {
		k.begin(id, o.Launch)
		return
	}
	p := k.launches[id]
	if p == nil {
		return
	}
	switch o.Kind {
	case Warn:
		_ = p.cmd.Process.Signal(syscall.Signal(o.Signal)) // it may have ended
	case Terminate:
		// Of a job's processes only the batch script gets TERM (proctrack/cgroup).
		at := time.Now().Format(clockFormat)
		_, _ = fmt.Fprintf(p.output, "slurmstepd-%s: error: *** JOB %d ON %s CANCELLED AT %s ***\n", o.Node, o.Job, o.Node, at) // nobody to tell
		_ = p.cmd.Process.Signal(syscall.SIGTERM)                                                                               // it may have ended
	case Start, Kill:
		p.kill()
	}
}

// clockFormat is that of Slurm's times.
const clockFormat = "2006-01-02T15:04:05"

// kill ends a job's processes: those of its batch script's session, and their
// descendants.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	for _, pid := range offspring(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// offspring are the processes of a session, and their descendants (proc(5),
// /proc/pid/stat).
func offspring(session int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	type entry struct{ pid, parent, session int }
	var all []entry
	for _, path := range stats {
		data, err := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(data), ") ")
		var e entry
		var state string
		var group int
		if err != nil {
			continue // it has ended
		}
		if _, err := fmt.Sscan(rest, &state, &e.parent, &group, &e.session); err != nil {
			continue
		}
		if e.pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all = append(all, e)
		}
	}
	var found []int
	of := map[int]bool{session: true}
	for before := -1; before < len(found); { // a parent's number may be above its child's
		before = len(found)
		for _, e := range all {
			if !of[e.pid] && (of[e.parent] || e.session == session) {
				of[e.pid] = true
				found = append(found, e.pid)
			}
		}
	}
	return found
}

// begin runs a job's batch script. What cannot be run ends at once.
func (k *Cluster) begin(id launchID, l Launch) {
	p, err := k.execute(l)
	if err != nil {
		end := End{Code: 2} // slurmstepd could not run the script
		if errors.Is(err, errOutput) {
			end = End{Signal: 53} // nor tell anybody
		}
		k.served.Go(func() { k.Do(func(now time.Time, c *Controller) { c.Ended(now, l.Job, l.Restart, end) }) })
		return
	}
	k.launches[id] = p
	k.served.Go(func() {
		end := p.wait()
		k.Do(func(now time.Time, c *Controller) {
			delete(k.launches, id)
			c.Ended(now, l.Job, l.Restart, end)
		})
	})
}

var errOutput = errors.New("cannot open the output")

// execute starts a job's batch script.
func (k *Cluster) execute(l Launch) (*process, error) {
	script := filepath.Join(k.dir, "spool", fmt.Sprintf("job%d.%d", l.Job, l.Restart))
	// No program that another goroutine starts now may inherit the file that is
	// open for writing: the script could not be run (ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(script, []byte(l.Request.Script), 0o700) //nolint:gosec // it is run
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("keep script: %w", err)
	}
	dir, moved := l.Request.Dir, ""
	if _, err := os.Stat(dir); err != nil {
		moved = fmt.Sprintf("slurmstepd-%s: error: couldn't chdir to `%s': %s: going to /tmp instead\n", l.Node, dir, reason(err))
		dir = "/tmp"
	}
	output, err := openOutput(l, dir, k.site.user(l.UID).Name)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprint(output, moved) // nobody to tell
	cmd := exec.Command(script)      //nolint:gosec,noctx // it lives as long as its job
	cmd.Dir, cmd.Env = dir, k.environment(l, dir)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = output.Close() // nothing was written
		return nil, fmt.Errorf("run script: %w", err)
	}
	return &process{cmd: cmd, output: output}, nil
}

func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(path.Err, syscall.ENOENT) {
		return "No such file or directory"
	}
	return err.Error()
}

func openOutput(l Launch, dir, user string) (*os.File, error) {
	path := l.spec.outputPath(l, user)
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if l.spec.truncate {
		mode |= os.O_TRUNC
	}
	output, err := os.OpenFile(path, mode, 0o644) //nolint:gosec // as slurmd makes it
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOutput, err)
	}
	return output, nil
}

// outputPath is the name of a job's output, with sbatch(1)'s filename pattern
// filled in.
func (s *spec) outputPath(l Launch, user string) string {
	pattern := s.Output
	if pattern == "" {
		pattern = "slurm-%j.out"
		if l.Array != 0 {
			pattern = "slurm-%A_%a.out"
		}
	}
	array, task := l.Job, ""
	if l.Array != 0 {
		array, task = l.Array, strconv.Itoa(l.Task)
	}
	return strings.NewReplacer("%%", "%", "%j", l.Job.String(), "%J", l.Job.String(), "%A", array.String(), "%a", task,
		"%x", s.Name, "%N", l.Node, "%n", "0", "%u", user).Replace(pattern)
}

// wait waits for the script's end, and then ends what it left behind.
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

// environment is that of a batch script: under --export=NONE nothing of
// the submitter's.
func (k *Cluster) environment(l Launch, dir string) []string {
	r, id := l.Request, l.Job.String()
	cpus := strconv.FormatInt(max(1, r.CPUs), 10)
	u := k.site.user(l.UID)
	env := append(slices.Clone(l.spec.env), []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games", "HOME=" + k.dir, "SHELL=/bin/bash", "TMPDIR=/tmp",
		"USER=" + u.Name, "LOGNAME=" + u.Name, "HOSTNAME=" + l.Node, "ENVIRONMENT=BATCH", "PWD=" + dir,
		"SLURM_JOB_ID=" + id, "SLURM_JOBID=" + id, "SLURM_JOB_NAME=" + r.Name, "SLURM_JOB_USER=" + u.Name,
		"SLURM_JOB_UID=" + strconv.Itoa(l.UID), "SLURM_JOB_ACCOUNT=" + r.Account, "SLURM_JOB_QOS=" + r.QOS,
		"SLURM_JOB_PARTITION=" + r.Partition, "SLURM_JOB_NODELIST=" + l.Node, "SLURM_NODELIST=" + l.Node,
		"SLURM_JOB_NUM_NODES=1", "SLURM_NNODES=1", "SLURMD_NODENAME=" + l.Node, "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0",
		"SLURM_CPUS_ON_NODE=" + cpus, "SLURM_JOB_CPUS_PER_NODE=" + cpus, "SLURM_TASKS_PER_NODE=1", "SLURM_SUBMIT_DIR=" + dir,
		"SLURM_SUBMIT_HOST=" + k.site.Host, "SLURM_CLUSTER_NAME=" + k.site.Name, "SLURM_CONF=" + k.conf(),
	}...)
	if l.spec.env == nil {
		env = append(env, "SLURM_EXPORT_ENV=NONE", "SLURM_GET_USER_ENV=1")
	}
	if r.CPUs > 0 {
		env = append(env, "SLURM_CPUS_PER_TASK="+cpus)
	}
	if r.MemoryMiB > 0 {
		env = append(env, "SLURM_MEM_PER_NODE="+strconv.FormatInt(r.MemoryMiB, 10))
	}
	if l.Restart > 0 {
		env = append(env, "SLURM_RESTART_COUNT="+strconv.Itoa(l.Restart))
	}
	if len(l.GPUs) > 0 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(l.GPUs), " ", ","), "[]")
		env = append(env, "SLURM_JOB_GPUS="+list, "CUDA_VISIBLE_DEVICES="+list, "GPU_DEVICE_ORDINAL="+list,
			"SLURM_GPUS_ON_NODE="+strconv.Itoa(len(l.GPUs)))
	}
	if l.Array != 0 {
		tasks := l.spec.tasks
		env = append(env, "SLURM_ARRAY_JOB_ID="+l.Array.String(), "SLURM_ARRAY_TASK_ID="+strconv.Itoa(l.Task),
			"SLURM_ARRAY_TASK_COUNT="+strconv.Itoa(len(tasks)), "SLURM_ARRAY_TASK_MIN="+strconv.Itoa(tasks[0]),
			"SLURM_ARRAY_TASK_MAX="+strconv.Itoa(tasks[len(tasks)-1]))
	}
	return env
}
