package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// check returns what is missing, impossible or contradictory.
func (c Config) check() error {
	u, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return errors.New("server is missing: the CodaLab server's address, such as \"https://worksheets.example.org\"")
	case err != nil || u.Host == "":
		return fmt.Errorf("server = %q is not an address such as \"https://worksheets.example.org\"", c.Server)
	case c.User == "":
		return errors.New("user is missing: the CodaLab user whose bundles the bridge runs")
	case c.PasswordFile == "" && c.TokenFile == "":
		return errors.New("token_file is missing: a file that only you may read, with a token of the server; or password_file, with the user's password")
	case c.PasswordFile != "" && c.TokenFile != "":
		return errors.New("password_file and token_file are both there: the bridge signs in with one of them")
	case !filepath.IsAbs(c.Shared):
		return fmt.Errorf("shared = %q: want the absolute path of a directory that compute nodes see too", c.Shared)
	case slices.ContainsFunc(c.Trust, func(name string) bool { return strings.Trim(name, "@ ") == "" }):
		return errors.New("trust has an empty name: want a user, or a group such as \"@lab\"")
	case c.ServerStore != "" && (!filepath.IsAbs(c.ServerStore) || filepath.Clean(c.ServerStore) == "/"):
		return fmt.Errorf("server_store = %q: want the absolute path of the server's store, as the server and compute nodes see it too", c.ServerStore)
	case c.ServerStore != "" && subpath.Within(c.Shared, c.ServerStore):
		return fmt.Errorf("shared = %q lies in server_store: the bridge's files are none of the server's", c.Shared)
	case len(c.Queue) == 0:
		return errors.New("no queue: add a table such as [queue.gpu]")
	}
	if err := c.checkMetrics(); err != nil {
		return err
	}
	if err := sqldb.Check(c.Ledger); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	for _, l := range c.Link {
		if err := l.check(c.Shared); err != nil {
			return err
		}
	}
	if err := errors.Join(c.checkQueues(), c.checkBinds()); err != nil {
		return err
	}
	switch low := c.LowWater.Bytes; {
	case c.SweepGrace.Duration < time.Hour:
		return errors.New("sweep_grace is below 1h: a job that is about to start may need younger files")
	case c.KeepHistory.Duration < time.Minute:
		return errors.New("keep_history is below 1m: no history of an ended bundle would be there to look at")
	case low != 0 && low < LeastLowWater:
		return fmt.Errorf("low_water is %d bytes, which is too little: write \"50g\" for fifty gigabytes, or \"0\" for none", low)
	}
	if err := errors.Join(c.Cache.check(), c.Staging.check(), c.Image.check(c.Shared), c.checkImageJobs(), c.checkWorkers(), c.checkMappings()); err != nil {
		return err
	}
	if strings.Trim(c.Slurm.Cluster, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || c.Slurm.Cluster == "all" {
		return fmt.Errorf("slurm.cluster = %q: want the name of one cluster; for each other one, run a bridge of its own", c.Slurm.Cluster)
	}
	if c.Slurm.ObserveEvery.Duration < time.Second {
		return errors.New("slurm.observe_every is below 1s: so many questions burden the controller")
	}
	return nil
}

// checkMetrics refuses an address or a file that nobody could read metrics from.
func (c Config) checkMetrics() error {
	if c.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(c.MetricsListen); err != nil {
			return fmt.Errorf("metrics_listen = %q: want an address such as \"127.0.0.1:9463\"", c.MetricsListen)
		}
	}
	if c.MetricsFile != "" && (!filepath.IsAbs(c.MetricsFile) || filepath.Ext(c.MetricsFile) != ".prom") {
		return fmt.Errorf("metrics_file = %q: want the absolute path of a file whose name ends in .prom, since node_exporter reads no others", c.MetricsFile)
	}
	return nil
}

// CheckRows refuses a configuration that lacks the queue of a row that is not done: no
// check-in would report how its bundle ended. It also refuses another cluster than that of a row's
// job, which no snapshot would show.
func (c Config) CheckRows(rows []plan.Row) error {
	for _, r := range rows {
		if r.Phase != plan.Done && c.Queue[r.Queue] == nil {
			return fmt.Errorf("[queue.%s] is gone from the configuration, and bundle %s of it is %s: keep the queue until its bundles have ended",
				r.Queue, r.Bundle, r.Phase)
		}
		if r.InFlight() && !r.Job.Submitted.IsZero() && r.Job.Cluster != c.Slurm.Cluster {
			return fmt.Errorf("slurm.cluster is %q in the configuration, and job %s of bundle %s is on %q: keep the cluster until its bundles have ended",
				c.Slurm.Cluster, r.Job.ID, r.Bundle, r.Job.Cluster)
		}
	}
	return nil
}

func (c Config) checkQueues() error {
	tags, fallback := map[string]string{}, ""
	for _, name := range c.QueueNames() {
		q := c.Queue[name]
		if err := q.check(name); err != nil {
			return fmt.Errorf("[queue.%s]: %w", name, err)
		}
		if other, ok := tags[q.tag(name)]; ok {
			return fmt.Errorf("[queue.%s]: tag %q is that of [queue.%s] already", name, q.tag(name), other)
		}
		tags[q.tag(name)] = name
		if q.Default && fallback != "" {
			return fmt.Errorf("[queue.%s]: default is set in [queue.%s] already", name, fallback)
		}
		if q.Default {
			fallback = name
		}
	}
	return nil
}

// LeastProcesses is the least limit of processes. Programs with threads need that many.
const LeastProcesses = 64

func (q Queue) check(name string) error {
	switch {
	case !codalab.IsName(name):
		return errors.New("a queue's name is a letter, then letters, digits and _.-")
	case q.Group != "" && !codalab.IsName(q.Group):
		return fmt.Errorf("group = %q: want the name of a group of the server's users", q.Group)
	case q.MaxTime.Duration != 0 && q.DefaultTime.Duration > q.MaxTime.Duration:
		return errors.New("default_time is above max_time")
	case q.MaxTime.Duration != 0 && q.Signal.Duration >= q.MaxTime.Duration:
		return errors.New("signal is not below max_time: no run would have time before its TERM")
	case q.RetryBegun != plan.RetryNever && q.RetryBegun != plan.RetryOnPlatform:
		return fmt.Errorf("retry_begun = %q: want %q or %q", q.RetryBegun, plan.RetryNever, plan.RetryOnPlatform)
	case !filepath.IsAbs(q.Scratch):
		return fmt.Errorf("scratch = %q: want an absolute path on the nodes", q.Scratch)
	case q.WorkingDirDisk != spool.WorkingDirShared && q.WorkingDirDisk != spool.WorkingDirLocal:
		return fmt.Errorf("workdir = %q: want %q or %q", q.WorkingDirDisk, spool.WorkingDirShared, spool.WorkingDirLocal)
	case !slices.Contains(runtimes.All(), q.Runtime):
		return fmt.Errorf("runtime = %q: want one of %q", q.Runtime, runtimes.All())
	case !slices.Contains(plan.Networks(), q.Network):
		return fmt.Errorf("network = %q: want one of %q", q.Network, plan.Networks())
	case q.ResultsMode != spool.ResultsUpload && q.ResultsMode != spool.ResultsKeep:
		return fmt.Errorf("results = %q: want %q or %q", q.ResultsMode, spool.ResultsUpload, spool.ResultsKeep)
	case q.DefaultImage != "" && !isImage(q.DefaultImage):
		return fmt.Errorf("default_image = %q is not the name of an image such as \"python:3.12\"", q.DefaultImage)
	case q.MaxProcesses < 0 || q.MaxProcesses > 0 && q.MaxProcesses < LeastProcesses:
		return fmt.Errorf("max_processes = %d: want %d or more, or 0 for no limit", q.MaxProcesses, LeastProcesses)
	case q.MaxInFlight < 0:
		return errors.New("max_in_flight is negative")
	case q.ArrayTasks < 0 || q.ArrayTasks > sbatch.MostTasks:
		return fmt.Errorf("array_tasks = %d: want a number from 0 to %d", q.ArrayTasks, sbatch.MostTasks)
	case q.PackRuns < 0 || q.PackRuns > sbatch.MostTasks:
		return fmt.Errorf("pack_runs = %d: want a number from 0 to %d", q.PackRuns, sbatch.MostTasks)
	case q.PackRuns > 1 && (q.PackSideBySide < 1 || q.PackTime.Duration <= 0):
		return errors.New("pack_runs needs pack_side_by_side, the number of runs at a time, and pack_time, the time limit of their common job")
	case q.PackRuns > 1 && (q.PackTime.Duration <= plan.PackMargin || q.PackTime.Duration%time.Minute != 0):
		return fmt.Errorf("pack_time = %q: want whole minutes, and more than the %s that no run of a pack uses", codalab.SpellDuration(q.PackTime.Duration), codalab.SpellDuration(plan.PackMargin))
	case q.PackRuns <= 1 && (q.PackSideBySide != 0 || q.PackTime.Duration != 0):
		return errors.New("pack_side_by_side and pack_time have no effect without pack_runs")
	case q.MaxTime.Duration > 0 && q.PackTime.Duration > q.MaxTime.Duration:
		return fmt.Errorf("pack_time = %q is longer than max_time", codalab.SpellDuration(q.PackTime.Duration))
	case q.Nice != 0 && q.hasNiceOption():
		return errors.New("nice has no effect beside the --nice in sbatch_options: leave one of them out")
	case q.Nice < 0 || q.Nice > plan.MaxNice:
		return fmt.Errorf("nice = %d: want a number from 0 to %d", q.Nice, plan.MaxNice)
	}
	if err := q.checkEnvironment(); err != nil {
		return err
	}
	if err := q.Architecture.Check(); err != nil {
		return fmt.Errorf("architecture: %w", err)
	}
	for _, dir := range q.Path {
		if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ":\x00") {
			return fmt.Errorf("path: %q: want the absolute path of a directory on the nodes, without a colon", dir)
		}
	}
	return nil
}

func (s Staging) check() error {
	const least = 64 << 10
	switch {
	case s.MaxDependency.set && s.MaxDependency.Bytes == 0:
		return errors.New("staging.max_dependency is 0: leave it out to be bounded by the disk alone")
	case s.MaxResults.set && s.MaxResults.Bytes == 0:
		return errors.New("staging.max_results is 0: leave it out to be bounded by the disk alone, or set results = \"keep\" for a queue")
	case s.MaxFiles < 0:
		return errors.New("staging.max_files is negative")
	case s.Downloads < 0:
		return errors.New("staging.downloads is negative")
	case s.Bandwidth.Bytes != 0 && s.Bandwidth.Bytes < least:
		return fmt.Errorf("staging.bandwidth = %q is below 64k bytes a second: write %q for two hundred megabytes", codalab.FormatSize(s.Bandwidth.Bytes), "200m")
	}
	return nil
}

func (c Cache) check() error {
	switch {
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return fmt.Errorf("cache.dir = %q: want the absolute path of a directory that compute nodes see too", c.Dir)
	case c.High < 1 || c.High > 100 || c.Low < 1 || c.Low > c.High:
		return fmt.Errorf("cache.high = %d and cache.low = %d: want percentages, low not above high", c.High, c.Low)
	}
	return nil
}

func (i Image) check(shared string) error {
	for _, root := range i.Roots {
		if err := checkRoot("image.roots", root, shared); err != nil {
			return err
		}
	}
	for key, image := range map[string]string{"default_cpu": i.DefaultCPU, "default_gpu": i.DefaultGPU} {
		if image != "" && !isImage(image) {
			return fmt.Errorf("image.%s = %q is not the name of an image such as \"python:3.12\"", key, image)
		}
	}
	switch {
	case i.Remember.Duration == 0:
		return errors.New("image.remember is 0: a registry would be asked for each bundle; write \"10s\" for nearly that")
	case i.Conversions < 0:
		return errors.New("image.conversions is negative")
	case i.Processors < 0:
		return errors.New("image.processors is negative")
	}
	if err := i.Converter().Check(); err != nil {
		return fmt.Errorf("[image]: %w", err)
	}
	return errors.Join(i.checkRegistries(), checkTempDir(i.TempDir))
}

// isImage reports whether a text may be the name of an image.
func isImage(name string) bool {
	_, err := source.ParseReference(name)
	return err == nil
}

func (i Image) checkRegistries() error {
	for host, h := range i.Hosts() {
		if ref, err := source.ParseReference(host + "/a/b"); err != nil || ref.Full() != host+"/a/b:latest" {
			return fmt.Errorf("[image.registry.%q]: want the host of a registry as names of images have it, such as \"docker.io\" or \"registry.site:5000\"", host)
		}
		if err := h.Check(); err != nil {
			return fmt.Errorf("[image.registry.%q]: %w", host, err)
		}
	}
	if _, err := i.Private(); err != nil {
		return fmt.Errorf("image.fetch_private: %w", err)
	}
	for _, dir := range i.Certs {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("image.certs: %q: want an absolute path", dir)
		}
	}
	for key, path := range map[string]string{"docker_config": i.DockerConfig, "logins": i.Logins} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("image.%s = %q: want an absolute path", key, path)
		}
	}
	return nil
}

// checkTempDir refuses a directory in the user's home. Homes are often small, backed up
// and remote; the layers of an image are large and live for a minute.
func checkTempDir(dir string) error {
	if dir == "" {
		return nil
	}
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("image.temp_dir = %q: want an absolute path on this host", dir)
	}
	me, err := user.Current()
	if err == nil && me.HomeDir != "/" && subpath.Within(dir, me.HomeDir) {
		return fmt.Errorf("image.temp_dir = %q lies in your home directory, which layers would fill: name a directory on a local disk, or leave it out to use the cache's", dir)
	}
	return nil
}

// checkImageJobs refuses impossible settings of the jobs that convert images.
func (c Config) checkImageJobs() error {
	name, limit := c.Image.Queue, c.Image.Time
	if name == "" {
		if limit.set {
			return errors.New("image.time is the time limit of jobs that convert images: name their queue as image.queue")
		}
		return nil
	}
	q := c.Queue[name]
	switch {
	case q == nil:
		return fmt.Errorf("image.queue = %q: there is no [queue.%s]", name, name)
	case q.Architecture.Foreign() != "":
		return fmt.Errorf("image.queue = %q: its nodes are %s, and images are converted by this program, which is for %s",
			name, q.Architecture.Canonical(), Architecture("").Canonical())
	case c.Image.TempDir != "":
		return errors.New("image.temp_dir and image.queue cannot be set together: the layers have to lie on the shared disk, where the job reads them")
	case limit.set && limit.Duration < time.Minute:
		return errors.New("image.time is below 1m")
	case q.MaxTime.Duration > 0 && c.Image.JobTime() > q.MaxTime.Duration:
		return fmt.Errorf("image.time is above the max_time of [queue.%s]", name)
	}
	return nil
}

// JobTime returns the time of a job that converts an image.
func (i Image) JobTime() time.Duration {
	if i.Time.set {
		return i.Time.Duration
	}
	return DefaultImageTime
}

// checkWorkers refuses a queue without a cl-worker for its nodes. Package sharedfiles
// looks for the one of this host's architecture.
func (c Config) checkWorkers() error {
	for a, path := range c.Workers {
		if err := a.Check(); err != nil {
			return fmt.Errorf("[workers]: %w", err)
		}
		if !filepath.IsAbs(path) {
			return fmt.Errorf("workers.%s = %q: want the absolute path of a cl-worker built for it", a, path)
		}
	}
	for _, name := range c.QueueNames() {
		a := c.Queue[name].Architecture.Canonical()
		if c.WorkerFor(a) == "" && a.Foreign() != "" {
			return fmt.Errorf("[queue.%s]: its nodes are %s and this host is %s: name a cl-worker built with GOARCH=%s in a table [workers], as %s = \"/path/cl-worker\"",
				name, a, Architecture("").Canonical(), a, a)
		}
	}
	return nil
}

// SystemDirs returns the directories of every host that hold no user's data.
func SystemDirs() []string { return []string{"/proc", "/sys", "/dev", "/run"} }

func (l Link) check(shared string) error {
	if l.Root == "" {
		return errors.New("[[link]]: root is missing: a directory whose data bundles may use in place")
	}
	if err := checkRoot("[[link]]: root", l.Root, shared); err != nil {
		return err
	}
	if slices.Contains(l.Users, "") {
		return fmt.Errorf("[[link]]: root = %q: users has an empty name", l.Root)
	}
	return nil
}

// checkRoot refuses a directory, the value of a key, in which bundles must not use
// anything.
func checkRoot(key, value, shared string) error {
	root := filepath.Clean(value)
	switch {
	case !filepath.IsAbs(root):
		return fmt.Errorf("%s = %q: want an absolute path", key, value)
	case root == "/":
		return fmt.Errorf("%s = \"/\": list the directories that hold data, not the whole machine", key)
	case subpath.Within(root, shared):
		return fmt.Errorf("%s = %q lies in the bridge's own directory %s", key, value, shared)
	}
	for _, dir := range SystemDirs() {
		if subpath.Within(root, dir) {
			return fmt.Errorf("%s = %q: there is no data in %s", key, value, dir)
		}
	}
	return nil
}
