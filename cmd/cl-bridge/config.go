package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
)

// config is the bridge's configuration file. docs/operators.md explains each
// key.
type config struct {
	Server       string `toml:"server"`
	User         string `toml:"user"`
	PasswordFile string `toml:"password_file"`
	Name         string `toml:"name"`
	Shared       string `toml:"shared"`
	ServerStore  string `toml:"server_store"`
	Ledger       string `toml:"ledger"`
	Worker       string `toml:"worker"`

	Workers map[architecture]string `toml:"workers"`

	DiskSettle      *duration `toml:"disk_settle"`
	KeepAfterAck    *duration `toml:"keep_after_ack"`
	StagePatience   *duration `toml:"stage_patience"`
	OutagePatience  *duration `toml:"outage_patience"`
	CollectPatience *duration `toml:"collect_patience"`
	MaxAttempts     int       `toml:"max_attempts"`
	CancelStrays    *bool     `toml:"cancel_strays"`
	LowWater        *lowWater `toml:"low_water"`
	SweepGrace      *duration `toml:"sweep_grace"`

	Slurm   slurmConfig             `toml:"slurm"`
	Image   imageConfig             `toml:"image"`
	Link    []linkConfig            `toml:"link"`
	Cache   cacheConfig             `toml:"cache"`
	Staging stagingConfig           `toml:"staging"`
	Queue   map[string]*queueConfig `toml:"queue"`

	path string // the file's
}

type slurmConfig struct {
	Bin          string    `toml:"bin"`
	Conf         string    `toml:"conf"`
	Accounting   *bool     `toml:"accounting"`
	MinJobAge    *duration `toml:"min_job_age"`
	ObserveEvery *duration `toml:"observe_every"`
}

type stagingConfig struct {
	MaxDependency *size `toml:"max_dependency"`
	MaxFiles      int   `toml:"max_files"`
	Bandwidth     size  `toml:"bandwidth"`
	Downloads     int   `toml:"downloads"`
}

func (s stagingConfig) check() error {
	const least = 64 << 10
	switch {
	case s.MaxDependency != nil && *s.MaxDependency == 0:
		return errors.New("staging.max_dependency is 0: leave it out to be bounded by the disk alone")
	case s.MaxFiles < 0:
		return errors.New("staging.max_files is negative")
	case s.Downloads < 0:
		return errors.New("staging.downloads is negative")
	case s.Bandwidth != 0 && s.Bandwidth < least:
		return fmt.Errorf("staging.bandwidth = %q is below 64k bytes a second: write %q for two hundred megabytes", codalab.FormatSize(int64(s.Bandwidth)), "200m")
	}
	return nil
}

// limits is how much one dependency may hold.
func (s stagingConfig) limits() tarstream.Limits {
	const files = 10_000_000
	return tarstream.Limits{Bytes: s.MaxDependency.or(0), Entries: int64(cmp.Or(s.MaxFiles, files))}
}

// pace is that of all downloads; nil where they are not bounded.
func (s stagingConfig) pace() *staging.Pace {
	if s.Bandwidth == 0 {
		return nil
	}
	return staging.NewPace(int64(s.Bandwidth))
}

// linkConfig is a directory whose data bundles use in place.
type linkConfig struct {
	Root  string   `toml:"root"`
	Users []string `toml:"users"`
}

type cacheConfig struct {
	Dir        string          `toml:"dir"`
	Size       size            `toml:"size"`
	OwnerSize  size            `toml:"owner_size"`
	OwnerSizes map[string]size `toml:"owner_sizes"`
	High       int             `toml:"high"`
	Low        int             `toml:"low"`
	MinFree    *size           `toml:"min_free"`
	Settle     *duration       `toml:"settle"`
	Group      bool            `toml:"group"`
}

func (c cacheConfig) check() error {
	high, low := cmp.Or(c.High, 90), cmp.Or(c.Low, 80)
	switch {
	case c.Dir != "" && !filepath.IsAbs(c.Dir):
		return fmt.Errorf("cache.dir = %q: want the absolute path of a directory that compute nodes see too", c.Dir)
	case high < 1 || high > 100 || low < 1 || low > high:
		return fmt.Errorf("cache.high = %d and cache.low = %d: want percentages, low not above high", high, low)
	}
	return nil
}

// quota is what contents of one owner may take, 0 for no bound.
func (c cacheConfig) quota(owner string) int64 {
	if own, ok := c.OwnerSizes[owner]; ok {
		return int64(own)
	}
	return int64(c.OwnerSize)
}

type queueConfig struct {
	Tag            string          `toml:"tag"`
	Group          string          `toml:"group"`
	Default        bool            `toml:"default"`
	Partition      string          `toml:"partition"`
	Account        string          `toml:"account"`
	QOS            string          `toml:"qos"`
	WCKey          string          `toml:"wckey"`
	Reservation    string          `toml:"reservation"`
	Constraint     string          `toml:"constraint"`
	GresType       string          `toml:"gres_type"`
	DefaultTime    duration        `toml:"default_time"`
	MaxTime        duration        `toml:"max_time"`
	TimeGrace      *duration       `toml:"time_grace"`
	MemoryOverhead *size           `toml:"memory_overhead"`
	MaxInFlight    int             `toml:"max_in_flight"`
	RetryBegun     plan.RetryBegun `toml:"retry_begun"`
	Scratch        string          `toml:"scratch"`
	WorkDir        spool.WorkDir   `toml:"workdir"`
	Runtime        runtimes.Name   `toml:"runtime"`
	Results        spool.Results   `toml:"results"`
	DefaultImage   string          `toml:"default_image"`
	Architecture   architecture    `toml:"architecture"`
	SbatchOptions  []string        `toml:"sbatch_options"`
}

// duration is a time as CodaLab writes it, "90s", "3h", "2d".
type duration time.Duration

// UnmarshalText reads a duration.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := codalab.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// or is the duration, or another where none was given.
func (d *duration) or(other time.Duration) time.Duration {
	if d == nil {
		return other
	}
	return time.Duration(*d)
}

// size is a number of bytes as CodaLab writes it, "300m", "2g".
type size int64

// UnmarshalText reads a size.
func (s *size) UnmarshalText(text []byte) error {
	v, err := codalab.ParseSize(string(text))
	*s = size(v)
	return err
}

// MarshalText writes a size.
func (s size) MarshalText() ([]byte, error) { return []byte(codalab.FormatSize(int64(s))), nil }

// or is the size, or another where none was given.
func (s *size) or(other int64) int64 {
	if s == nil {
		return other
	}
	return int64(*s)
}

// lowWater is how much of a disk is to stay free: a size, "50g", or a part of it,
// "5%".
type lowWater plan.LowWater

// UnmarshalText reads a low water.
func (l *lowWater) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	if !ok {
		v, err := codalab.ParseSize(string(text))
		*l = lowWater{Bytes: v}
		return err
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 50) {
		return fmt.Errorf("%q is no part of a disk: want one up to 50%%, such as \"5%%\", or a size such as \"50g\"", text)
	}
	*l = lowWater{Share: percent / 100}
	return nil
}

// leastLowWater is the smallest low water. Below it a unit is probably missing.
const leastLowWater = 64 << 20

// check refuses what looks like a size without its unit.
func (l *lowWater) check() error {
	if l == nil || l.Bytes == 0 || l.Bytes >= leastLowWater {
		return nil
	}
	return fmt.Errorf("low_water is %d bytes, which are gone at once: write \"50g\" for fifty gigabytes, or \"0\" for none", l.Bytes)
}

// or is the low water, or another where none was given.
func (l *lowWater) or(other plan.LowWater) plan.LowWater {
	if l == nil {
		return other
	}
	return plan.LowWater(*l)
}

// readConfig reads and checks a configuration file. Its errors name the file,
// and the line where there is one.
func readConfig(path string) (config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parseConfig(bytes.NewReader(data))
	if err != nil {
		return config{}, fmt.Errorf("%s: %w", path, err)
	}
	if c.path, err = filepath.Abs(path); err != nil {
		return config{}, fmt.Errorf("read configuration: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return config{}, fmt.Errorf("read configuration: %w", err)
	}
	if sqldb.HasPassword(c.Ledger) && info.Mode().Perm()&0o077 != 0 {
		return config{}, fmt.Errorf("%s has the ledger's password in it and may be read by others: chmod 600 it, or put the password into ~/.pgpass", path)
	}
	return c, nil
}

func parseConfig(r io.Reader) (config, error) {
	var c config
	err := toml.NewDecoder(r).DisallowUnknownFields().Decode(&c)
	if err != nil {
		return config{}, configError(err)
	}
	return c, c.check()
}

// configError says in one line which line of the file is wrong, and how.
func configError(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		first := unknown.Errors[0]
		line, _ := first.Position()
		return fmt.Errorf("line %d: unknown key %s", line, strings.Join(first.Key(), "."))
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		line, _ := wrong.Position()
		where := ""
		if key := wrong.Key(); len(key) > 0 {
			where = strings.Join(key, ".") + ": "
		}
		return fmt.Errorf("line %d: %s%s", line, where, plain(wrong))
	}
	return err
}

// intoGo is how go-toml words a value of the wrong kind: in terms of a program
// that the operator does not know.
var intoGo = regexp.MustCompile(`cannot decode TOML (\w+) into struct field \S+ of type \*?(?:\w+\.)?(\w+)`)

// plain is what go-toml says of a wrong value, for operators.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "toml: ")
	m := intoGo.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	want := map[string]string{
		"string": "a text in quotes", "int": "a whole number", "bool": "true or false", "size": "a text such as \"2g\"",
		"duration": "a text such as \"3h\"", "lowWater": "a text such as \"50g\" or \"5%\"",
		"RetryBegun": "a text in quotes", "architecture": "a text in quotes", "WorkDir": "a text in quotes", "Runtime": "a text in quotes", "Results": "a text in quotes",
	}[m[2]]
	return fmt.Sprintf("want %s, not TOML's %s", cmp.Or(want, "another kind of value"), m[1])
}

// check says what is missing or cannot be.
func (c config) check() error {
	u, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return errors.New("server is missing: the CodaLab server's address, such as \"https://worksheets.example.org\"")
	case err != nil || u.Host == "":
		return fmt.Errorf("server = %q is not an address such as \"https://worksheets.example.org\"", c.Server)
	case c.User == "":
		return errors.New("user is missing: whose bundles the bridge runs")
	case c.PasswordFile == "":
		return errors.New("password_file is missing: a file that only you may read, with the user's password")
	case !filepath.IsAbs(c.Shared):
		return fmt.Errorf("shared = %q: want the absolute path of a directory that compute nodes see too", c.Shared)
	case c.ServerStore != "" && (!filepath.IsAbs(c.ServerStore) || filepath.Clean(c.ServerStore) == "/"):
		return fmt.Errorf("server_store = %q: want the absolute path of the server's store, as the server and compute nodes see it too", c.ServerStore)
	case c.ServerStore != "" && below(c.Shared, c.ServerStore):
		return fmt.Errorf("shared = %q lies in server_store: the bridge's files are none of the server's", c.Shared)
	case len(c.Queue) == 0:
		return errors.New("no queue: add a table such as [queue.gpu]")
	}
	if err := sqldb.Check(c.Ledger); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	for _, l := range c.Link {
		if err := l.check(c.Shared); err != nil {
			return err
		}
	}
	tags, fallback := map[string]string{}, ""
	for _, name := range slices.Sorted(maps.Keys(c.Queue)) {
		q := c.Queue[name]
		if err := q.check(name); err != nil {
			return err
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
	if d := c.SweepGrace.or(time.Hour); d < time.Hour {
		return errors.New("sweep_grace is below 1h: what was written so lately may be needed by a job that is about to start")
	}
	if err := c.LowWater.check(); err != nil {
		return err
	}
	if err := c.Cache.check(); err != nil {
		return err
	}
	if err := errors.Join(c.Staging.check(), c.Image.check(c.Shared), c.checkJobs(), c.checkWorkers()); err != nil {
		return err
	}
	if d := c.Slurm.ObserveEvery.or(time.Second); d < time.Second {
		return errors.New("slurm.observe_every is below 1s: that is more than a controller should be asked")
	}
	return nil
}

func (q queueConfig) check(name string) error {
	switch {
	case !codalab.IsName(name):
		return fmt.Errorf("[queue.%s]: a queue's name is a letter, then letters, digits and _.-", name)
	case q.Group != "" && !codalab.IsName(q.Group):
		return fmt.Errorf("[queue.%s]: group = %q: want the name of a group of the server's users", name, q.Group)
	case q.MaxTime != 0 && q.DefaultTime > q.MaxTime:
		return fmt.Errorf("[queue.%s]: default_time is above max_time", name)
	case q.RetryBegun != "" && q.RetryBegun != plan.RetryNever && q.RetryBegun != plan.RetryOnPlatform:
		return fmt.Errorf("[queue.%s]: retry_begun = %q: want %q or %q", name, q.RetryBegun, plan.RetryNever, plan.RetryOnPlatform)
	case q.Scratch != "" && !filepath.IsAbs(q.Scratch):
		return fmt.Errorf("[queue.%s]: scratch = %q: want an absolute path on the nodes", name, q.Scratch)
	case q.WorkDir != "" && q.WorkDir != spool.WorkDirShared && q.WorkDir != spool.WorkDirLocal:
		return fmt.Errorf("[queue.%s]: workdir = %q: want %q or %q", name, q.WorkDir, spool.WorkDirShared, spool.WorkDirLocal)
	case q.Runtime != "" && !slices.Contains(runtimes.All(), q.Runtime):
		return fmt.Errorf("[queue.%s]: runtime = %q: want one of %q", name, q.Runtime, runtimes.All())
	case q.Results != "" && q.Results != spool.ResultsUpload && q.Results != spool.ResultsKeep:
		return fmt.Errorf("[queue.%s]: results = %q: want %q or %q", name, q.Results, spool.ResultsUpload, spool.ResultsKeep)
	case q.DefaultImage != "" && !isImage(q.DefaultImage):
		return fmt.Errorf("[queue.%s]: default_image = %q is not the name of an image such as \"python:3.12\"", name, q.DefaultImage)
	case q.MaxInFlight < 0:
		return fmt.Errorf("[queue.%s]: max_in_flight is negative", name)
	}
	if err := q.Architecture.check(); err != nil {
		return fmt.Errorf("[queue.%s]: architecture: %w", name, err)
	}
	for _, option := range q.SbatchOptions {
		if !strings.HasPrefix(option, "--") {
			return fmt.Errorf("[queue.%s]: sbatch_options: %q: want options such as \"--licenses=matlab\"", name, option)
		}
	}
	return nil
}

// slurm returns a client of the site's Slurm. slurm.conf is the configured one, or
// else the one of the environment.
func (c config) slurm(p program.Process) *sbatch.Client {
	return &sbatch.Client{Bin: c.Slurm.Bin, Conf: cmp.Or(c.Slurm.Conf, p.Getenv("SLURM_CONF"))}
}

// accounting says whether sacct works at this site.
func (c config) accounting() bool { return c.Slurm.Accounting == nil || *c.Slurm.Accounting }

// settle is how long the shared disk may take to show a node's files.
func (c config) settle() time.Duration { return c.DiskSettle.or(10 * time.Second) }

// lowWater is how much of the shared disk is to stay free.
func (c config) lowWater() plan.LowWater {
	return c.LowWater.or(plan.LowWater{Bytes: 50 << 30, Share: 0.05}) // a large disk need not be 5 % empty
}

func (q queueConfig) tag(name string) string { return cmp.Or(q.Tag, name) }

// queues are the queues as the plan has them.
func (c config) queues() map[string]plan.Queue {
	queues := make(map[string]plan.Queue, len(c.Queue))
	for name, q := range c.Queue {
		queues[name] = plan.Queue{
			Name: name, Tag: q.tag(name), Group: q.Group, Default: q.Default,
			Partition: q.Partition, Account: q.Account, QOS: q.QOS, WCKey: q.WCKey,
			Reservation: q.Reservation, Constraint: q.Constraint, GPUType: q.GresType,
			DefaultTime: time.Duration(q.DefaultTime), MaxTime: time.Duration(q.MaxTime),
			TimeGrace:      q.TimeGrace.or(2 * time.Minute),
			MemoryOverhead: q.MemoryOverhead.or(64 << 20),
			MaxInFlight:    q.MaxInFlight,
			RetryBegun:     cmp.Or(q.RetryBegun, plan.RetryNever),
			Scratch:        cmp.Or(q.Scratch, "/tmp"),
			WorkDir:        cmp.Or(q.WorkDir, spool.WorkDirShared),
			Runtime:        cmp.Or(q.Runtime, runtimes.Auto),
			Results:        cmp.Or(q.Results, spool.ResultsUpload),
			CPUImage:       cmp.Or(q.DefaultImage, c.Image.DefaultCPU),
			GPUImage:       cmp.Or(q.DefaultImage, c.Image.DefaultGPU),
			Architecture:   string(q.Architecture.other()),
			Extra:          q.SbatchOptions,
		}
	}
	return queues
}
