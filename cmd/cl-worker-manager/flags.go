package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// manager is one call of the program: the process, and the flags of the manager
// (codalab/worker_manager/main.py: main).
type manager struct {
	program.Process
	server   string
	min, max int
	search   *argparse.Words
	verbose  bool
	format   program.LogFormat
	// metricsListen and metricsFile are where the metrics are served and written; empty for nowhere.
	metricsListen, metricsFile string
	sleepSeconds               int64
	noPrefilter                bool
	once                       bool
	spaceSeconds               int64
	worker                     workerFlags
}

// workerFlags are the flags about workers.
type workerFlags struct {
	tag, group, workDirPrefix, maxWorkDirSize, executable      string
	image                                                      string
	fetchPrivate                                               []string
	network                                                    string
	format                                                     program.LogFormat
	idleSeconds, retries, checkInSeconds, exitAfterRuns, shmGB int64
	deleteWorkDir, exitOnException, tagExclusive, preemptible  bool
}

// addFlags adds the flags of the manager.
func (m *manager) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&m.server, "server", "", "`address` of the server (default: $CODALAB_SERVER, or the one that cl uses)")
	flags.Bool("temp-session", true, "accepted: the manager keeps no session")
	flags.IntVar(&m.min, "min-workers", 1, "minimum `number` of workers")
	flags.IntVar(&m.max, "max-workers", 10, "maximum `number` of workers")
	m.search = argparse.WordsFlag(flags, "search", "", "consider only bundles that a search for `keyword...` finds")
	flags.BoolVar(&m.verbose, "verbose", false, "log the reason for each bundle that is left out")
	program.LogFormatVar(flags, &m.format)
	flags.StringVar(&m.metricsListen, "metrics-listen", "", "the `address` to serve /metrics on, such as 127.0.0.1:9465, to everybody who reaches it")
	flags.StringVar(&m.metricsFile, "metrics-file", "", "a `file` for node_exporter's textfile collector, whose name ends in .prom, to write the metrics to")
	flags.Int64Var(&m.sleepSeconds, "sleep-time", 1, "`seconds` between two requests to the server")
	flags.Int64("restart-after-seconds", 0, "accepted: this manager need not start again after some `seconds`")
	flags.BoolVar(&m.noPrefilter, "no-prefilter", false, "start workers also for bundles that do not fit them")
	flags.BoolVar(&m.once, "once", false, "check the bundles once, start the needed workers, and end")
	flags.Int64Var(&m.spaceSeconds, "min-seconds-between-workers", 0, "least `seconds` between two starts of workers")
	w := &m.worker
	flags.StringVar(&w.tag, "worker-tag", "", "`tag` of the workers, for cl run --request-queue")
	flags.StringVar(&w.workDirPrefix, "worker-work-dir-prefix", "", "`directory` in which workers have their working directory, which they share")
	flags.StringVar(&w.maxWorkDirSize, "worker-max-work-dir-size", "", "most bytes of a worker's working directory, such as 20g (`size`)")
	flags.BoolVar(&w.deleteWorkDir, "worker-delete-work-dir-on-exit", false, "workers delete their working directory when they end")
	flags.Int64Var(&w.idleSeconds, "worker-idle-seconds", 600, "a worker ends after so many `seconds` without a run")
	flags.Int64Var(&w.retries, "worker-download-dependencies-max-retries", 3, "`number` of retries of a failed download")
	flags.Int64Var(&w.checkInSeconds, "worker-checkin-frequency-seconds", 0, "`seconds` between two check-ins of a worker")
	flags.Int64Var(&w.exitAfterRuns, "worker-exit-after-num-runs", 0, "a worker ends after this `number` of runs")
	flags.Bool("worker-pass-down-termination", false, "accepted: workers always do so")
	flags.BoolVar(&w.exitOnException, "worker-exit-on-exception", false, "a worker ends when it fails")
	flags.BoolVar(&w.tagExclusive, "worker-tag-exclusive", false, "workers run only bundles that ask for their tag")
	flags.StringVar(&w.group, "worker-group", "", "workers run bundles of this `group`")
	flags.StringVar(&w.executable, "worker-executable", "cl-worker", "the worker's `program`; without a slash it is searched in this program's directory, then in PATH")
	flags.StringVar(&w.image, "worker-image", "", "`image` of workers in a cloud (default: $CL_WORKER_IMAGE, or in Kubernetes "+ownImage+" with this version as its tag)")
	flags.Int64Var(&w.shmGB, "worker-shared-memory-size-gb", 0, "shared memory of a container, in `GiB`")
	flags.StringArrayVar(&w.fetchPrivate, "worker-fetch-private", nil, "a `host` or network of your own with registries of images, for cl-worker's --fetch-private; may be repeated")
	flags.StringVar(&w.network, "worker-bundle-network", "", "`network` of runs that request one: "+strings.Join(networkChoices(), ", ")+" (one of their own, none, or that of the node)")
	w.format = program.LogText
	flags.Var(&w.format, "worker-log-format", "the `form` of the workers' logs, for cl-worker's --log-format: text or json")
	flags.BoolVar(&w.preemptible, "worker-preemptible", false, "workers report that they may be preempted")
}

// ownImage is the name under which "make worker-image" makes the workers' image, for nodes that import it. Nobody else
// can publish an image of this name.
const ownImage = "localhost/cl-worker"

// check fails for flags that contradict each other or have invalid values.
func (m *manager) check() error {
	switch {
	case m.max < m.min:
		return program.Usage(fmt.Errorf("minimum # of workers (%d) greater than maximum # of workers (%d)", m.min, m.max))
	case m.min < 0:
		return program.Usage(fmt.Errorf("--min-workers is %d: want 0 or more", m.min))
	case m.sleepSeconds < 0 || m.spaceSeconds < 0 || m.worker.idleSeconds < 0:
		return program.Usage(fmt.Errorf("a number of seconds is below 0"))
	case m.worker.tag != "" && !regexp.MustCompile(`^[\pL\pN-]+$`).MatchString(m.worker.tag): // codalab/worker/main.py: main
		return program.Usage(fmt.Errorf("--worker-tag %q must only contain letters, numbers or hyphens", m.worker.tag))
	}
	if err := m.checkMetrics(); err != nil {
		return program.Usage(err)
	}
	if n := m.worker.network; n != "" && !slices.Contains(networkChoices(), n) {
		return program.Usage(fmt.Errorf("--worker-bundle-network %q: want one of %s", n, strings.Join(networkChoices(), ", ")))
	}
	return nil
}

// checkMetrics fails for metrics that nobody could read.
func (m *manager) checkMetrics() error {
	if m.metricsListen != "" {
		if _, _, err := net.SplitHostPort(m.metricsListen); err != nil {
			return fmt.Errorf("--metrics-listen %q: want an address such as 127.0.0.1:9465", m.metricsListen)
		}
	}
	switch {
	case m.metricsFile != "" && filepath.Ext(m.metricsFile) != ".prom":
		return fmt.Errorf("--metrics-file %q: want a file whose name ends in .prom, since node_exporter reads no others", m.metricsFile)
	case m.once && (m.metricsListen != "" || m.metricsFile != ""):
		return errors.New("--once ends before anybody reads metrics: leave out --metrics-listen and --metrics-file")
	}
	return nil
}

// networkChoices are the values of a worker's --bundle-network.
func networkChoices() []string {
	var all []string
	for _, n := range plan.Networks() {
		all = append(all, string(n))
	}
	return all
}

// arguments are the words that the flags add to the command line of a worker (worker_manager.py: build_command).
func (w *workerFlags) arguments() []string {
	var words []string
	text := func(name, value string) {
		if value != "" {
			words = append(words, name, value)
		}
	}
	number := func(name string, n int64) {
		if n > 0 {
			words = append(words, name, strconv.FormatInt(n, 10))
		}
	}
	is := func(name string, set bool) {
		if set {
			words = append(words, name)
		}
	}
	text("--tag", w.tag)
	text("--group", w.group)
	number("--exit-after-num-runs", w.exitAfterRuns)
	number("--download-dependencies-max-retries", w.retries)
	text("--max-work-dir-size", w.maxWorkDirSize)
	is("--delete-work-dir-on-exit", w.deleteWorkDir)
	is("--exit-on-exception", w.exitOnException)
	is("--tag-exclusive", w.tagExclusive)
	number("--checkin-frequency-seconds", w.checkInSeconds)
	number("--shared-memory-size-gb", w.shmGB)
	text("--bundle-network", w.network)
	is("--preemptible", w.preemptible)
	if w.format == program.LogJSON { // CodaLab's worker does not have the flag
		text("--log-format", string(w.format))
	}
	for _, place := range w.fetchPrivate {
		text("--fetch-private", place)
	}
	return words
}
