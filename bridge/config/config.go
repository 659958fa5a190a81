// Package config reads the configuration file of a bridge.
//
// A [Config] has a field for each key. [Keys] lists the keys with their defaults and
// meanings: [Parse] takes the defaults from that table, `cl-bridge init` its comments,
// and docs/keys.md is generated from it. A file that Parse accepts can be used as
// it is: each key that it leaves out has its default, and no value contradicts another.
//
// The package reads only the file, and the password's. Package doctor checks whether the
// server, Slurm and the disks are there.
package config

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Config is a configuration file. [Keys] has the meaning of each key.
type Config struct {
	Server       string `toml:"server"`
	User         string `toml:"user"`
	PasswordFile string `toml:"password_file"`
	TokenFile    string `toml:"token_file"`
	Name         string `toml:"name"`
	Shared       string `toml:"shared"`
	ServerStore  string `toml:"server_store"`
	Ledger       string `toml:"ledger"`
	Worker       string `toml:"worker"`

	MetricsListen string `toml:"metrics_listen"`
	MetricsFile   string `toml:"metrics_file"`

	Trust []string `toml:"trust"`

	DiskSettle      Duration `toml:"disk_settle"`
	KeepAfterAck    Duration `toml:"keep_after_ack"`
	KeepHistory     Duration `toml:"keep_history"`
	StagePatience   Duration `toml:"stage_patience"`
	OutagePatience  Duration `toml:"outage_patience"`
	CollectPatience Duration `toml:"collect_patience"`
	QuotaPatience   Duration `toml:"quota_patience"`
	MaxAttempts     int      `toml:"max_attempts"`
	CancelStrays    *bool    `toml:"cancel_strays"`
	LowWater        LowWater `toml:"low_water"`
	SweepGrace      Duration `toml:"sweep_grace"`

	Slurm   Slurm                   `toml:"slurm"`
	Image   Image                   `toml:"image"`
	Workers map[Architecture]string `toml:"workers"`
	Link    []Link                  `toml:"link"`
	Map     []Mapping               `toml:"map"`
	Cache   Cache                   `toml:"cache"`
	Staging Staging                 `toml:"staging"`
	Queue   map[string]*Queue       `toml:"queue"`

	// Path is the absolute path of the file; empty for a Config of [Parse].
	Path string `toml:"-"`
}

// Slurm is the table about the site's Slurm.
type Slurm struct {
	Bin          string   `toml:"bin"`
	Conf         string   `toml:"conf"`
	Cluster      string   `toml:"cluster"`
	Accounting   *bool    `toml:"accounting"`
	MinJobAge    Duration `toml:"min_job_age"`
	ObserveEvery Duration `toml:"observe_every"`
}

// HasAccounting reports whether the site has an accounting database: as the key says, or else as Slurm says.
func (s Slurm) HasAccounting(bySlurm bool) bool {
	if s.Accounting != nil {
		return *s.Accounting
	}
	return bySlurm
}

// Image is the table about the images in which bundles run: the default ones, their sources and their
// conversion.
type Image struct {
	DefaultCPU string   `toml:"default_cpu"`
	DefaultGPU string   `toml:"default_gpu"`
	Remember   Duration `toml:"remember"`
	Offline    bool     `toml:"offline"`
	Roots      []string `toml:"roots"`

	DockerConfig string              `toml:"docker_config"`
	Logins       string              `toml:"logins"`
	Registry     map[string]Registry `toml:"registry"`
	Certs        []string            `toml:"certs"`
	FetchPrivate []string            `toml:"fetch_private"`

	Conversions int      `toml:"conversions"`
	TempDir     string   `toml:"temp_dir"`
	Queue       string   `toml:"queue"`
	Time        Duration `toml:"time"`
	Compression string   `toml:"compression"`
	Level       int      `toml:"level"`
	BlockSize   Size     `toml:"block_size"`
	Processors  int      `toml:"processors"`
	Memory      Size     `toml:"memory"`
	Nice        int      `toml:"nice"`
}

// Registry is the table about one registry.
type Registry struct {
	Mirrors   []string `toml:"mirrors"`
	PlainHTTP bool     `toml:"plain_http"`
}

// Link is a directory. Bundles use its data in place.
type Link struct {
	Root  string   `toml:"root"`
	Users []string `toml:"users"`
}

// Cache bounds the cache of images and dependencies.
type Cache struct {
	Dir        string          `toml:"dir"`
	Size       Size            `toml:"size"`
	OwnerSize  Size            `toml:"owner_size"`
	OwnerSizes map[string]Size `toml:"owner_sizes"`
	High       int             `toml:"high"`
	Low        int             `toml:"low"`
	MinFree    Size            `toml:"min_free"`
	Settle     Duration        `toml:"settle"`
	Group      bool            `toml:"group"`
}

// Staging bounds the downloads of dependencies and the uploads of results.
type Staging struct {
	MaxDependency Size `toml:"max_dependency"`
	MaxResults    Size `toml:"max_results"`
	MaxFiles      int  `toml:"max_files"`
	Bandwidth     Size `toml:"bandwidth"`
	Downloads     int  `toml:"downloads"`
}

// Queue is a table [queue.NAME].
type Queue struct {
	Tag            string               `toml:"tag"`
	Group          string               `toml:"group"`
	Default        bool                 `toml:"default"`
	Partition      string               `toml:"partition"`
	Account        string               `toml:"account"`
	QOS            string               `toml:"qos"`
	WCKey          string               `toml:"wckey"`
	Reservation    string               `toml:"reservation"`
	Constraint     string               `toml:"constraint"`
	Nice           int                  `toml:"nice"`
	GresType       string               `toml:"gres_type"`
	DefaultTime    Duration             `toml:"default_time"`
	MaxTime        Duration             `toml:"max_time"`
	DefaultDisk    Size                 `toml:"default_disk"`
	TimeGrace      Duration             `toml:"time_grace"`
	KillGrace      Duration             `toml:"kill_grace"`
	Signal         Duration             `toml:"signal"`
	MemoryOverhead Size                 `toml:"memory_overhead"`
	MaxProcesses   int                  `toml:"max_processes"`
	MaxInFlight    int                  `toml:"max_in_flight"`
	ArrayTasks     int                  `toml:"array_tasks"`
	PackRuns       int                  `toml:"pack_runs"`
	PackSideBySide int                  `toml:"pack_side_by_side"`
	PackTime       Duration             `toml:"pack_time"`
	RetryBegun     plan.RetryBegun      `toml:"retry_begun"`
	Path           []string             `toml:"path"`
	Environment    map[string]string    `toml:"environment"`
	Binds          []string             `toml:"binds"`
	Scratch        string               `toml:"scratch"`
	WorkingDirDisk spool.WorkingDirDisk `toml:"workdir"`
	Runtime        runtimes.Name        `toml:"runtime"`
	Network        plan.Network         `toml:"network"`
	ResultsMode    spool.ResultsMode    `toml:"results"`
	DefaultImage   string               `toml:"default_image"`
	Architecture   Architecture         `toml:"architecture"`
	SbatchOptions  []SbatchOption       `toml:"sbatch_options"`
}

// DefaultLowWater is the low water where the file names none. The second bound is for
// large disks: 5 % of them is more than a bridge needs.
func DefaultLowWater() plan.LowWater { return plan.LowWater{Bytes: 50 << 30, Share: 0.05} }

// DefaultMaxProcesses is the limit of processes where the file names none. A fork bomb of so many is harmless to the
// host, and programs on large nodes have fewer threads.
const DefaultMaxProcesses = 4096

// DefaultImageTime is the time of a job that converts an image. It is enough for the
// largest images there are.
const DefaultImageTime = time.Hour

// Plan returns the queues as package plan knows them. Their Worker is not set.
func (c Config) Plan() map[string]plan.Queue {
	queues := make(map[string]plan.Queue, len(c.Queue))
	for name, q := range c.Queue {
		queues[name] = plan.Queue{
			Name: name, Tag: q.tag(name), Group: q.Group, Default: q.Default,
			Partition: q.Partition, Account: q.Account, QOS: q.QOS, WCKey: q.WCKey,
			Reservation: q.Reservation, Constraint: q.Constraint, Nice: int64(q.Nice), GPUType: q.GresType,
			DefaultTime: q.DefaultTime.Duration, MaxTime: q.MaxTime.Duration, TimeGrace: q.TimeGrace.Duration, KillGrace: q.KillGrace.Duration, Signal: q.Signal.Duration,
			DefaultDisk: q.DefaultDisk.Bytes, MemoryOverhead: q.MemoryOverhead.Bytes, MaxProcesses: int64(q.MaxProcesses), MaxInFlight: q.MaxInFlight, ArrayTasks: q.ArrayTasks,
			PackRuns: q.PackRuns, PackSideBySide: q.PackSideBySide, PackTime: q.PackTime.Duration, RetryBegun: q.RetryBegun,
			Path: q.Path, Environment: q.environment(), Binds: q.binds(), Scratch: q.Scratch, WorkingDirDisk: q.WorkingDirDisk, Runtime: q.Runtime, Network: q.Network, ResultsMode: q.ResultsMode,
			DefaultCPUImage: cmp.Or(q.DefaultImage, c.Image.DefaultCPU),
			DefaultGPUImage: cmp.Or(q.DefaultImage, c.Image.DefaultGPU),
			Architecture:    string(q.Architecture.Foreign()),
			Extra:           q.sbatchOptions(),
		}
	}
	return queues
}

func (q Queue) sbatchOptions() []string {
	var options []string
	for _, o := range q.SbatchOptions {
		options = append(options, o.Text)
	}
	return options
}

func (q Queue) tag(name string) string { return cmp.Or(q.Tag, name) }

// Architectures returns the architectures of the queues' nodes, sorted.
func (c Config) Architectures() []Architecture {
	var all []Architecture
	for _, q := range c.Queue {
		all = append(all, q.Architecture.Canonical())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// WorkerFor returns the cl-worker that [workers] names for an architecture, or nothing.
func (c Config) WorkerFor(a Architecture) string {
	for other, path := range c.Workers {
		if other.Canonical() == a {
			return path
		}
	}
	return ""
}

// DefaultImages returns the references for a queue's bundles that name no image. The first is
// for bundles without GPUs.
func (c Config) DefaultImages(q *Queue) []string {
	if q.DefaultImage != "" {
		return []string{q.DefaultImage}
	}
	return []string{cmp.Or(c.Image.DefaultCPU, plan.CodaLabCPUImage), cmp.Or(c.Image.DefaultGPU, plan.CodaLabGPUImage)}
}

// BridgeName returns the bridge's name on a host.
func (c Config) BridgeName(host string) string { return cmp.Or(c.Name, c.User+"-"+host) }

// QueueNames returns the names of the queues, sorted.
func (c Config) QueueNames() []string { return slices.Sorted(maps.Keys(c.Queue)) }

// Converter returns a converter with these settings, without a source.
func (i Image) Converter() apptainer.Converter {
	const mib = 1 << 20
	return apptainer.Converter{
		TempDir: i.TempDir, Compression: i.Compression, Level: i.Level, BlockSize: int(i.BlockSize.Bytes),
		Processors: i.Processors, MemoryMiB: int(i.Memory.Bytes / mib), Nice: i.Nice,
	}
}

// Private returns the places of fetch_private.
func (i Image) Private() (outbound.Places, error) { return outbound.Parse(i.FetchPrivate) }

// Hosts returns the registries that have a table.
func (i Image) Hosts() map[string]source.Host {
	hosts := map[string]source.Host{}
	for host, r := range i.Registry {
		hosts[host] = source.Host{Mirrors: r.Mirrors, PlainHTTP: r.PlainHTTP}
	}
	return hosts
}

// Quota returns the bytes that contents of one owner may take; 0 means no bound.
func (c Cache) Quota(owner string) int64 {
	if own, ok := c.OwnerSizes[owner]; ok {
		return own.Bytes
	}
	return c.OwnerSize.Bytes
}
