package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/staging/nodeimages"
	"github.com/cl-slurm/cl-slurm/worker/local"
)

// end returns the time by which the worker has to have ended; zero for none.
func (w *standalone) end() (time.Time, error) {
	after := w.stopAfter
	if text := w.Getenv("CL_WORKER_STOP_AFTER"); after == 0 && text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return time.Time{}, fmt.Errorf("CL_WORKER_STOP_AFTER=%q: want a number of seconds", text)
		}
		after = n
	}
	if after > 0 {
		return w.Now().Add(seconds(after)), nil
	}
	if w.runtime == runtimeSlurm {
		return time.Time{}, nil
	}
	// Slurm tells the end of the job around the worker (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
	if n, err := strconv.ParseInt(w.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && n > 0 {
		return time.Unix(n, 0), nil
	}
	return time.Time{}, nil
}

// configuration returns the configuration of a bridge with one queue, as the flags describe it.
func (w *standalone) configuration() (config.Config, error) {
	text := fmt.Sprintf("server = %q\nuser = %q\npassword_file = \"-\"\nshared = %q\nledger = %q\n"+
		"keep_after_ack = \"15m\"\nquota_patience = \"0\"\nmax_attempts = 3\n[queue.%s]\n", w.server, w.login.User, w.dirs.Own(), w.dirs.Ledger(), queueName)
	c, err := config.Parse(strings.NewReader(text))
	if err != nil {
		return config.Config{}, err
	}
	c.Name = w.dirs.ID
	c.Image.FetchPrivate = w.fetchPrivate
	if _, err := c.Image.Private(); err != nil {
		return config.Config{}, fmt.Errorf("--fetch-private: %w", err)
	}
	c.Cache.Dir, c.Cache.Size.Bytes = w.dirs.Cache(), w.maxWorkDir.bytes
	if w.sharedFileSystem {
		c.ServerStore = "/" // the server names each place
	}
	q := c.Queue[queueName]
	q.Group, q.Default, q.MaxInFlight, q.Network = w.group, !w.tagExclusive || w.tag == "", w.slots, w.network
	q.MaxProcesses = w.maxProcesses
	switch w.runtime {
	case runtimeApptainer:
		q.Runtime = runtimes.Apptainer
	case runtimeBuiltin:
		q.Runtime = runtimes.Builtin
	case runtimeDocker:
		q.Runtime = runtimes.Docker
	case runtimeKubernetes:
		w.configurePods(q)
		if c.Worker, err = os.Executable(); err != nil { // a copy of it on the volume is the first process of each pod
			return config.Config{}, fmt.Errorf("find cl-worker: %w", err)
		}
	case runtimeSlurm:
		for _, dir := range filepath.SplitList(w.Getenv("PATH")) { // the jobs find the programs that this user does
			if filepath.IsAbs(dir) {
				q.Path = append(q.Path, dir)
			}
		}
	}
	if w.runtime != runtimeSlurm {
		q.MemoryOverhead.Bytes = 0 // the processes around a command are not in its memory
		c.Slurm.ObserveEvery.Duration = 300 * time.Millisecond
		c.DiskSettle.Duration = time.Second // a run writes on the host on which the worker reads
	}
	return c, nil
}

// findSlurm finds Slurm's commands.
func (w *standalone) findSlurm(ctx context.Context) error {
	w.slurm = &sbatch.Client{Conf: w.Getenv("SLURM_CONF")}
	version, err := w.slurm.Version(ctx)
	if err != nil {
		return program.Usage(fmt.Errorf("--bundle-runtime slurm: %w", err))
	}
	w.slurmVersion = version[strings.LastIndexByte(version, ' ')+1:] // such as "slurm-wlm 22.05.8"
	w.log.InfoContext(ctx, "found Slurm", slog.String("version", version))
	return nil
}

// allCPUs is the value of --cpuset for all CPUs.
const allCPUs = "ALL"

// findMachine finds the part of this host that runs may use.
func (w *standalone) findMachine() error {
	if w.pods != nil {
		return nil // findPodsShare has found the part of the cluster
	}
	host, err := local.FindMachine()
	if err != nil {
		return err
	}
	found, err := host.InAllocation(w.Getenv, w.gpuset)
	if err != nil {
		return err
	}
	w.machine = found
	if w.cpuset != allCPUs {
		w.machine.Unbound = false
		if w.machine.CPUs, err = local.ParseCPUSet(w.cpuset, host.CPUs); err != nil {
			return program.Usage(fmt.Errorf("--cpuset: %w", err))
		}
	}
	if w.machine.GPUs, err = local.ParseGPUSet(w.gpuset, found.GPUs); err != nil {
		return program.Usage(fmt.Errorf("--gpuset: %w", err))
	}
	if err := w.boundCPUs(); err != nil {
		return err
	}
	if most := w.maxMemory.bytes; most > 0 {
		w.machine.Memory = min(w.machine.Memory, most)
	}
	return nil
}

// boundCPUs takes no more CPUs than --max-cpus. A container of AWS Batch may use all CPUs of its instance while the
// others rest, and does not see the number that its job has asked for.
func (w *standalone) boundCPUs() error {
	most := w.maxCPUs
	if text := w.Getenv("CL_WORKER_MAX_CPUS"); most == 0 && text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return program.Usage(fmt.Errorf("CL_WORKER_MAX_CPUS=%q: want a number of CPUs", text))
		}
		most = n
	}
	if most > 0 && most < len(w.machine.CPUs) {
		w.machine.CPUs, w.machine.Unbound = w.machine.CPUs[:most], w.machine.Unbound || w.cpuset == allCPUs
	}
	return nil
}

// adjust makes a stand-alone worker of a bridge.
func (w *standalone) adjust(made assembly.Parts, giveBack <-chan struct{}) {
	b := made.Bridge
	q := b.Policy.Queues[queueName]
	q.WorkerID, q.Tag, q.ShmBytes = w.dirs.ID, w.tag, w.shmGB<<30
	b.Policy.Queues[queueName] = q
	b.Policy.StageTries = w.downloadRetries + 1
	made.Images.MaxImageBytes = w.maxImage.bytes
	if w.engine != nil {
		images := w.engineImages(made)
		made.Stager.Images = images
		w.keepTrimmed = func(ctx context.Context) { images.KeepTrimmed(ctx, made.Bridge.Observed, w.log) }
	}
	b.Policy.SlurmVersion = w.slurmVersion
	if w.slurm == nil {
		b.Policy.Accounting, b.Policy.RecordAge = false, time.Hour
		b.Policy.SubmitGrace = 15 * time.Second
		b.Pace = bridge.Pace{PerSecond: 1000, Burst: 1000}
		b.DoorbellEvery = 100 * time.Millisecond
		b.ReadEvery = time.Second
		b.Owners = nil // Slurm shows nobody its jobs
		b.Ports = ports{runner: runner.Runner{Env: onnode.EngineEnv(w.Process)}, pods: w.pods}
	}
	if w.pods != nil {
		made.Stager.Images = nodeimages.Images{}
	}
	b.Standalone = &bridge.Standalone{
		Local: w.slurm == nil, Patience: w.patience(), Remote: w.remote(), Preemptible: w.preemptible, CheckInPause: seconds(w.checkInSeconds),
		ExitWhenIdle: w.exitWhenIdle, IdleFor: seconds(w.idleSeconds), Until: w.until, GiveBack: giveBack,
	}
	if _, place := w.tokenSource(); place == loginVariable {
		b.Standalone.DeniedFor = deniedFor
	}
	if w.exitAfterRuns < codalab.UnlimitedRuns {
		b.Standalone.MostRuns = w.exitAfterRuns
	}
}

// A worker that gives its runs back has to end before it is killed: in a job of Slurm (slurm.conf(5): KillWait) or of
// AWS Batch 30 s after TERM, elsewhere after a minute and a half (systemd-system.conf(5):
// DefaultTimeoutStopSec).
const (
	patienceInJob = 24 * time.Second
	patience      = 80 * time.Second
)

// deniedFor is the time for which the server may refuse the token of a worker that has it from a variable, before the
// worker ends. Nobody can give it another one.
const deniedFor = 10 * time.Minute

func (w *standalone) patience() time.Duration {
	if w.Getenv("SLURM_JOB_ID") != "" || w.Getenv(awsJobVariable) != "" {
		return patienceInJob
	}
	return patience
}

// remote returns the name that the server shows for the place of a run: the worker's id and the host.
func (w *standalone) remote() string {
	switch {
	case w.slurm != nil:
		return "" // the node's name
	case strings.Contains(w.dirs.ID, w.host):
		return w.dirs.ID
	}
	return w.host + "-" + w.dirs.ID
}
