package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// flags are the flags of a stand-alone worker: those of CodaLab's own (codalab/worker/main.py: parse_args),
// and the older --slots.
type flags struct {
	server, wsServer          string
	passwordFile, tokenFile   string
	id, tag, group            string
	tagExclusive, preemptible bool
	workDir                   string
	deleteWorkDir             bool
	maxWorkDir, maxImages     size
	maxImage, maxMemory       size
	cpuset, gpuset            string
	runtime                   string
	shmGB                     int64
	sharedFileSystem          bool
	networkPrefix             string
	downloadRetries           int
	exitWhenIdle              bool
	idleSeconds               int64
	checkInSeconds            int64
	exitAfterRuns             int64
	passDown                  bool
	exitOnException           bool
	verbose                   bool
	slots                     int
	stopAfter                 int64
	kubernetes                [4]string
}

// The runtimes of --bundle-runtime.
const (
	runtimeAuto       = "auto"
	runtimeApptainer  = "apptainer"
	runtimeBuiltin    = "builtin"
	runtimeDocker     = "docker"
	runtimeSlurm      = "slurm"
	runtimeKubernetes = "kubernetes"
)

func (f *flags) add(s *pflag.FlagSet) {
	f.maxWorkDir.bytes = 10 << 30
	s.SortFlags = false
	s.StringVar(&f.server, "server", "", "`address` of the server, such as https://worksheets.codalab.org; else $CODALAB_SERVER, else the one that cl uses")
	s.StringVar(&f.wsServer, "ws-server", "", "ignored: the worker keeps a check-in open at the server, which answers it at once")
	s.StringVar(&f.passwordFile, "password-file", "", "a `file` that only you can read, with the user name and the password on two lines; else $CODALAB_USERNAME and $CODALAB_PASSWORD, else the terminal is asked")
	s.StringVar(&f.tokenFile, "token-file", "", "a `file` that only you can read, with a worker token for --id instead of a password (cl-server alone gives them out)")
	s.StringVar(&f.id, "id", "", "the worker's `name` at the server (default HOST(PID), or that of a worker that has ended here and left runs)")
	s.StringVar(&f.tag, "tag", "", "takes bundles with --request-queue `TAG`, and those that name no queue")
	s.BoolVar(&f.tagExclusive, "tag-exclusive", false, "takes no other bundles than those with its tag")
	s.StringVar(&f.group, "group", "", "also takes bundles of this `group`'s members that you may write")
	s.BoolVar(&f.preemptible, "preemptible", false, "tells the server that this host may be taken away")
	s.StringVar(&f.workDir, "work-dir", "codalab-worker-scratch", "`directory` for runs, and for the images and dependencies that all workers with it share")
	s.BoolVar(&f.deleteWorkDir, "delete-work-dir-on-exit", false, "remove from the work directory, at the end, what no other worker uses")
	s.Var(&f.maxWorkDir, "max-work-dir-size", "bound of the dependencies that are kept, a `SIZE` such as 3g")
	s.Var(&f.maxImages, "max-image-cache-size", "bound of the images that are kept, a `SIZE`; the least recently used go first")
	s.Var(&f.maxImage, "max-image-size", "bound of the download of one image, a `SIZE`; bundles with a larger one fail")
	s.Var(&f.maxMemory, "max-memory", "bound of the memory of all runs together, a `SIZE`; else the host's")
	s.StringVar(&f.cpuset, "cpuset", "ALL", "the CPUs of runs: `0,2,3`, or ALL")
	s.StringVar(&f.gpuset, "gpuset", "ALL", "the GPUs of runs by index or UUID: `0,1`, ALL or NONE")
	s.StringVar(&f.runtime, "bundle-runtime", runtimeAuto, "what runs containers: auto, apptainer, builtin or docker; slurm runs each bundle as a Slurm job")
	s.Int64Var(&f.shmGB, "shared-memory-size-gb", 1, "size of /dev/shm in containers, in `GB`")
	s.BoolVar(&f.sharedFileSystem, "shared-file-system", false, "dependencies are used and results left where the server says that they are on a disk that both see")
	s.StringVar(&f.networkPrefix, "network-prefix", "codalab_worker_network", "ignored: the worker makes no Docker networks")
	s.IntVar(&f.downloadRetries, "download-dependencies-max-retries", 3, "how often a failed download of a dependency is repeated")
	s.BoolVar(&f.exitWhenIdle, "exit-when-idle", false, "end when there is nothing to run")
	s.Int64Var(&f.idleSeconds, "idle-seconds", 0, "for how many `seconds` there must have been nothing to run")
	s.Int64Var(&f.checkInSeconds, "checkin-frequency-seconds", 0, "pause between two check-ins without news, in `seconds` (default none: one check-in is always open)")
	s.Int64Var(&f.exitAfterRuns, "exit-after-num-runs", codalab.UnlimitedRuns, "end after this `many` runs")
	s.BoolVar(&f.passDown, "pass-down-termination", false, "on SIGTERM stop the runs and give them back to the server; without it they go on, and a worker of the same --id takes them up")
	s.BoolVar(&f.exitOnException, "exit-on-exception", false, "ignored: the worker always ends when it cannot go on")
	s.BoolVar(&f.verbose, "verbose", false, "log what the worker does in detail")
	s.IntVar(&f.slots, "slots", 0, "bound of the runs at a time, `N` (of older workers)")
	s.Int64Var(&f.stopAfter, "stop-after", 0, "end within this many `seconds`, give unfinished runs back, and take none that may run longer (default $CL_WORKER_STOP_AFTER, or the end of the Slurm job around the worker)")
	for i, name := range kubernetesFlags() {
		s.StringVar(&f.kubernetes[i], name, "", "refused: there is no runtime for Kubernetes yet")
	}
}

func kubernetesFlags() []string {
	return []string{"kubernetes-cluster-host", "kubernetes-auth-token", "kubernetes-cert-path", "kubernetes-cert"}
}

// plainTag is what a worker's tag may be (codalab/worker/main.py: main).
var plainTag = regexp.MustCompile(`^[\pL\pN-]*$`)

// check refuses what no worker can do.
func (f *flags) check() error {
	runtimes := []string{runtimeAuto, runtimeApptainer, runtimeBuiltin, runtimeDocker, runtimeSlurm}
	switch {
	case f.runtime == runtimeKubernetes || slices.ContainsFunc(f.kubernetes[:], func(s string) bool { return s != "" }):
		return errors.New("--bundle-runtime kubernetes and the --kubernetes flags: there is no runtime for Kubernetes yet; auto, apptainer, builtin, docker and slurm are there")
	case !slices.Contains(runtimes, f.runtime):
		return fmt.Errorf("--bundle-runtime %q: want one of %q", f.runtime, runtimes)
	case !plainTag.MatchString(f.tag):
		return fmt.Errorf("--tag %q: a tag has letters, digits and hyphens only", f.tag)
	case f.group != "" && !codalab.IsName(f.group):
		return fmt.Errorf("--group %q: want the name of a group", f.group)
	case len(f.id) > 200:
		return errors.New("--id: a worker's name has at most 200 bytes")
	case f.tokenFile != "" && f.passwordFile != "":
		return errors.New("--token-file and --password-file: give one of them")
	case f.workDir == "":
		return errors.New("--work-dir: want a directory")
	case f.idleSeconds < 0, f.checkInSeconds < 0, f.exitAfterRuns < 1, f.shmGB < 0, f.downloadRetries < 0, f.slots < 0, f.stopAfter < 0:
		return errors.New("--idle-seconds, --checkin-frequency-seconds, --exit-after-num-runs, --shared-memory-size-gb, " +
			"--download-dependencies-max-retries, --slots and --stop-after take no negative numbers, and --exit-after-num-runs no 0")
	}
	return nil
}

// size is a flag's value, such as 3g (codalab/lib/formatting.py: parse_size).
type size struct{ bytes int64 }

// Set reads a size.
func (s *size) Set(text string) (err error) {
	s.bytes, err = codalab.ParseSize(text)
	if err == nil && s.bytes <= 0 {
		err = errors.New("want more than nothing")
	}
	return err
}

// String is the size, or nothing for no bound.
func (s *size) String() string {
	if s.bytes == 0 {
		return ""
	}
	return codalab.FormatSize(s.bytes)
}

// Type is what the help shows.
func (s *size) Type() string { return "size" }

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
