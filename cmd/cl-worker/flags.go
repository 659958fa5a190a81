package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// flags are the flags of a stand-alone worker: those of CodaLab's own worker (codalab/worker/main.py:
// parse_args), the older --slots, and those of our own.
type flags struct {
	server                    string
	passwordFile, tokenFile   string
	token                     string // that of the environment
	id, tag, group            string
	tagExclusive, preemptible bool
	workDir                   string
	deleteWorkDir             bool
	maxWorkDir, maxImages     size
	maxImage, maxMemory       size
	cpuset, gpuset            string
	runtime                   string
	network                   plan.Network
	shmGB                     int64
	sharedFileSystem          bool
	downloadRetries           int
	exitWhenIdle              bool
	idleSeconds               int64
	checkInSeconds            int64
	exitAfterRuns             int64
	passDown                  bool
	verbose                   bool
	format                    program.LogFormat
	slots                     int
	fetchPrivate              []string
	maxProcesses, maxCPUs     int
	stopAfter                 int64
	kubernetes                kubernetesFlags
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
	s.StringVar(&f.server, "server", "", "`address` of the server (default: $CODALAB_SERVER, or the one that cl uses)")
	s.String("ws-server", "", "accepted: the worker needs no `address` of a websocket")
	s.StringVar(&f.passwordFile, "password-file", "", "`file` with the user name and the password, on two lines, that only you may read (default: $CODALAB_USERNAME and $CODALAB_PASSWORD, or the worker asks)")
	s.StringVar(&f.tokenFile, "token-file", "", "`file` that only you may read, with a token of cl-server for --id instead of a password: a worker token, or one of cl-server token add (default: $CODALAB_WORKER_TOKEN)")
	s.StringVar(&f.id, "id", "", "`name` of the worker at the server (default: HOST(PID))")
	s.StringVar(&f.tag, "tag", "", "`tag` for cl run --request-queue")
	s.BoolVar(&f.tagExclusive, "tag-exclusive", false, "run only bundles that ask for the tag")
	s.StringVar(&f.group, "group", "", "also run bundles of members of the `group`, if you may change the bundles")
	s.BoolVar(&f.preemptible, "preemptible", false, "tell the server that this host may be preempted")
	s.StringVar(&f.workDir, "work-dir", "codalab-worker-scratch", "`directory` for runs, images and dependencies; workers may share it")
	s.BoolVar(&f.deleteWorkDir, "delete-work-dir-on-exit", false, "remove the work directory at the end, unless another worker uses it")
	s.Var(&f.maxWorkDir, "max-work-dir-size", "most bytes of dependencies that are kept, such as 3g (`size`)")
	s.Var(&f.maxImages, "max-image-cache-size", "most bytes of images that are kept (`size`; default: no bound)")
	s.Var(&f.maxImage, "max-image-size", "most bytes of an image's download (`size`; default: no bound)")
	s.Var(&f.maxMemory, "max-memory", "memory for all runs together (`size`; default: that of the host)")
	s.IntVar(&f.maxCPUs, "max-cpus", 0, "`number` of CPUs for all runs together (default: $CL_WORKER_MAX_CPUS, or those of the host)")
	s.IntVar(&f.maxProcesses, "max-processes", config.DefaultMaxProcesses, "most processes and threads of a run (`number`; 0 for no limit)")
	s.StringVar(&f.cpuset, "cpuset", allCPUs, "`list` of the CPUs for runs, such as 0,2,3")
	s.StringVar(&f.gpuset, "gpuset", "ALL", "`list` of the GPUs for runs, by index or UUID, such as 0,1; NONE for none")
	s.StringVar(&f.runtime, "bundle-runtime", runtimeAuto, "`program` that runs containers: "+strings.Join(runtimeChoices(), ", ")+"; slurm runs each bundle as a Slurm job, kubernetes as a pod")
	s.StringVar((*string)(&f.network), "bundle-network", string(plan.NetworkByRequest), "`network` of runs that request one: "+strings.Join(networkChoices(), ", ")+" (one of their own, none, or that of the host)")
	s.Int64Var(&f.shmGB, "shared-memory-size-gb", 1, "shared memory of a container, in `GiB`")
	s.BoolVar(&f.sharedFileSystem, "shared-file-system", false, "use dependencies and leave results on a disk that the server and this host share")
	s.String("network-prefix", "codalab_worker_network", "accepted: the worker makes no Docker networks (`prefix`)")
	s.IntVar(&f.downloadRetries, "download-dependencies-max-retries", 3, "`number` of retries of a failed download of a dependency")
	s.BoolVar(&f.exitWhenIdle, "exit-when-idle", false, "end when there is nothing to run")
	s.Int64Var(&f.idleSeconds, "idle-seconds", 0, "with --exit-when-idle: end after so many `seconds` without a run")
	s.Int64Var(&f.checkInSeconds, "checkin-frequency-seconds", 0, "`seconds` between two check-ins without news (default: 0, for the server answers at once)")
	s.Int64Var(&f.exitAfterRuns, "exit-after-num-runs", codalab.UnlimitedRuns, "end after this `number` of runs")
	s.BoolVar(&f.passDown, "pass-down-termination", false, "on SIGTERM end the runs and give them back to the server; else they continue")
	s.Bool("exit-on-exception", false, "accepted: the worker always ends when it cannot continue")
	s.BoolVar(&f.verbose, "verbose", false, "log in detail")
	program.LogFormatVar(s, &f.format)
	s.StringArrayVar(&f.fetchPrivate, "fetch-private", nil, "a `host` or network (10.1.0.0/16) of your own with registries of images, besides public addresses; may be repeated")
	s.IntVar(&f.slots, "slots", 0, "most runs at a time (`number`; default: no bound)")
	s.Int64Var(&f.stopAfter, "stop-after", 0, "end within so many `seconds`, and take no run that may last longer (default: $CL_WORKER_STOP_AFTER, or the end of the Slurm job around the worker)")
	f.kubernetes.add(s)
	f.addHidden(s)
}

// addHidden adds the flags of CodaLab's older command worker.sh.
func (f *flags) addHidden(s *pflag.FlagSet) {
	s.StringVar(&f.server, "bundle-service-url", "", "older name of --server (`address`)")
	s.String("max-dependencies-serialized-length", "", "accepted: names of dependencies have no bound (`number`)")
	for _, name := range []string{"bundle-service-url", "max-dependencies-serialized-length"} {
		if hidden := s.Lookup(name); hidden != nil {
			hidden.Hidden = true
		}
	}
}

// runtimeChoices are the values of --bundle-runtime.
func runtimeChoices() []string {
	return []string{runtimeAuto, runtimeDocker, runtimeApptainer, runtimeBuiltin, runtimeSlurm, runtimeKubernetes}
}

// networkChoices are the values of --bundle-network.
func networkChoices() []string {
	var all []string
	for _, n := range plan.Networks() {
		all = append(all, string(n))
	}
	return all
}

// plainTag matches the valid tags of workers (codalab/worker/main.py: main).
var plainTag = regexp.MustCompile(`^[\pL\pN-]*$`)

// check fails for flags and values that this worker does not support.
func (f *flags) check() error {
	switch {
	case !slices.Contains(runtimeChoices(), f.runtime):
		return fmt.Errorf("--bundle-runtime %q: want one of %s", f.runtime, strings.Join(runtimeChoices(), ", "))
	case !slices.Contains(plan.Networks(), f.network):
		return fmt.Errorf("--bundle-network %q: want one of %s", f.network, strings.Join(networkChoices(), ", "))
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
	case f.exitAfterRuns < 1:
		return errors.New("--exit-after-num-runs: want 1 or more")
	case f.downloadRetries < 0, f.slots < 0, f.maxCPUs < 0:
		return errors.New("--download-dependencies-max-retries, --slots and --max-cpus: want 0 or more")
	case f.maxProcesses < 0 || f.maxProcesses > 0 && f.maxProcesses < config.LeastProcesses:
		return fmt.Errorf("--max-processes %d: want %d or more, or 0 for no limit", f.maxProcesses, config.LeastProcesses)
	case f.idleSeconds < 0, f.checkInSeconds < 0, f.stopAfter < 0, f.shmGB < 0:
		return errors.New("--idle-seconds, --checkin-frequency-seconds, --stop-after and --shared-memory-size-gb: want 0 or more")
	}
	return f.checkKubernetes()
}

// size is a flag's value, such as 3g (codalab/lib/formatting.py: parse_size).
type size struct{ bytes int64 }

// Set reads a size.
func (s *size) Set(text string) error {
	bytes, err := codalab.ParseSize(text)
	if err != nil || bytes <= 0 {
		return fmt.Errorf("a size such as 3g, not %q", text)
	}
	s.bytes = bytes
	return nil
}

// String is the size, or nothing for no bound.
func (s *size) String() string {
	if s.bytes == 0 {
		return ""
	}
	return codalab.FormatSize(s.bytes)
}

// Type returns the placeholder of the value in the help.
func (s *size) Type() string { return "size" }

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
