package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// SubmitWithin is the longest time from a row's SubmittedAt to the start of its sbatch. A later Submit
// does not run sbatch, and counts as a temporary refusal.
const SubmitWithin = 10 * time.Second

// UnknownWithoutAccounting lists, within a sentence, the facts that a bridge does not learn at a site without an
// accounting database.
const UnknownWithoutAccounting = "the canceller of a job, the exit status of a job without an exit record, " +
	"the end of a job that Slurm forgot while the bridge was away, energy, and costs by Slurm's own clock"

// Policy has the configuration of the site and of the bridge's owner, as far as decisions need it.
type Policy struct {
	// Bridge is the bridge's own number, of six hexadecimal digits. Each submission name ends with it.
	Bridge string
	// Owner is the CodaLab user of the bridge. Jobs of bundles whose owner's name is not known have it in their names.
	Owner string
	// Layout is the shared directory.
	Layout spool.Layout
	// Worker is the cl-worker that jobs run.
	Worker sbatch.Program
	// Queues are the queues by name.
	Queues map[string]Queue
	// Map decides by their owners which account, QOS and so on bundles' jobs have.
	Map []Mapping `json:",omitempty"`

	// SubmitGrace is the least time from the start of a submission to the request of a snapshot that can
	// prove that the submission made no job. It is longer than SubmitWithin and the longest life of an
	// sbatch together.
	SubmitGrace time.Duration
	// OrphanGrace is the time that the bridge leaves an orphan job alone. It is longer than SubmitGrace.
	// After it the bridge cancels the job if CancelOrphans is set, and else only logs it.
	OrphanGrace   time.Duration
	CancelOrphans bool
	// RecordAge is the least time for which Slurm shows an ended job (MinJobAge). Without accounting, a
	// snapshot that is younger than this and lacks a job proves that there is none.
	RecordAge time.Duration
	// Accounting is set if the site has an accounting database. UnknownWithoutAccounting names the losses without one.
	Accounting bool
	// SlurmVersion is the version of Slurm's controller; empty if it is not known.
	SlurmVersion string `json:",omitempty"`
	// MaxArraySize bounds the tasks of an array (slurm.conf(5)); 0 if the site has no arrays, or its settings are not known.
	MaxArraySize int `json:",omitempty"`
	// Settle is the longest time until the shared disk shows a record that was written before a job
	// ended.
	Settle time.Duration
	// StuckFor is the time for which Slurm must give a reason for which a job can never start before the
	// bundle fails for it.
	StuckFor time.Duration
	// StagePatience is the time for which failing staging is tried again before the bundle fails,
	// CollectPatience the same for collecting.
	StagePatience, CollectPatience time.Duration
	// QuotaPatience is the time for which results wait on the shared disk until their owner's disk quota has room for
	// them. Then the bundle fails.
	QuotaPatience time.Duration
	// StageTries also bounds the tries of staging, without those that fail for an outage or a full disk; 0
	// for no such bound.
	StageTries int
	// OutagePatience is the same for staging while a server, a registry or a disk is unreachable.
	OutagePatience time.Duration
	// LongestAckPause is the longest pause between two questions to a server that has not acknowledged a
	// reported verdict. The first pauses are shorter.
	LongestAckPause time.Duration
	// MaxAttempts bounds the attempts of one bundle.
	MaxAttempts int
	// KeepAfterAck is the time that results stay on the shared disk after the server has acknowledged them.
	KeepAfterAck time.Duration
	// LowWater is the free space on the shared disk below which the bridge neither claims bundles nor stages
	// inputs. A bundle that has its inputs goes on, because only its end makes room.
	LowWater LowWater
}

// RetryBegun decides whether a bundle that has begun may begin again.
type RetryBegun string

// The choices for RetryBegun.
const (
	RetryNever      RetryBegun = "never"
	RetryOnPlatform RetryBegun = "on_platform"
)

// Network is the network that a queue gives to bundles that request one.
type Network string

// The networks of queues.
const (
	// NetworkByRequest is a network of the bundle's own, from which it reaches other machines.
	NetworkByRequest Network = "request"
	// NetworkOfHost is the node's own network.
	NetworkOfHost Network = "host"
	// NetworkNever is none.
	NetworkNever Network = "never"
)

// Networks returns all of them.
func Networks() []Network { return []Network{NetworkByRequest, NetworkNever, NetworkOfHost} }

// Queue is one configured queue: a CodaLab tag, and the place in Slurm where its jobs run.
type Queue struct {
	Name string
	// Tag is the value of request_queue by which bundles ask for the queue.
	Tag string
	// Group is a group of users at the CodaLab server. The queue accepts its members' bundles, and those
	// of the bridge's own user. It is empty for no group.
	Group string
	// WorkerID is the queue's worker id at the server; empty for the bridge's name and the queue's.
	WorkerID string
	// Default is set for the queue of bundles without a tag.
	Default bool

	Partition, Account, QOS, WCKey, Reservation, Constraint string
	// Nice lowers the priority of the queue's jobs.
	Nice int64
	// GPUType is the gres type of request_gpus; empty for any.
	GPUType string
	// Nodes are the sizes of the queue's nodes that Slurm last showed; empty while they are not known.
	Nodes sbatch.NodeSizes
	// LimitedBy has the limit of Slurm's QOS or associations that makes Nodes smaller than the nodes are; empty for none.
	LimitedBy string `json:",omitempty"`
	// DefaultTime is the time limit of a bundle that sets none; 0 for MaxTime. MaxTime is the
	// maximum allowed; 0 for no bound.
	DefaultTime, MaxTime time.Duration
	// DefaultDisk is the disk limit of a bundle that sets none, in bytes; 0 for no limit.
	DefaultDisk int64
	// TimeGrace is the difference between Slurm's time limit and the bundle's. It lets the worker's own
	// timer fire first.
	TimeGrace time.Duration
	// KillGrace is the time that a command has between TERM and KILL; 0 for the worker's default, which is
	// too short for a checkpoint. If it is set, Slurm signals the worker at once at a preemption.
	KillGrace time.Duration
	// Signal is the time before its time limit at which a command gets TERM, to save its state; 0 for none.
	Signal time.Duration `json:",omitempty"`
	// MemoryOverhead is added to request_memory, in bytes, for the processes around the
	// command.
	MemoryOverhead int64
	// MaxProcesses limits the processes and threads of a container; 0 means no limit.
	MaxProcesses int64
	// MaxInFlight bounds the queue's jobs in Slurm; 0 for no bound.
	MaxInFlight int
	// ArrayTasks bounds the bundles of one owner that one array of the queue runs; 0 or 1 for no arrays.
	ArrayTasks int `json:",omitempty"`
	// PackRuns bounds the bundles of one owner that one allocation of the queue runs, PackSideBySide of them at once, within PackTime; 0 or
	// 1 for no packs.
	PackRuns       int           `json:",omitempty"`
	PackSideBySide int           `json:",omitempty"`
	PackTime       time.Duration `json:",omitempty"`
	// RetryBegun decides whether a bundle that has begun, and does not ask to be resumed, may begin again.
	RetryBegun RetryBegun
	// Path lists directories on the nodes in which jobs look for programs first.
	Path []string
	// Environment has variables for the queue's commands, as NAME=value, and Binds directories of the nodes for their
	// containers.
	Environment []string     `json:",omitempty"`
	Binds       []spool.Bind `json:",omitempty"`
	// Scratch is a directory on the nodes' own disk. WorkingDirDisk decides whether working directories are on
	// it too.
	Scratch        string
	WorkingDirDisk spool.WorkingDirDisk
	// Runtime is the container runtime of the queue.
	Runtime runtimes.Name
	// Network is the network of bundles that request one; empty means NetworkByRequest.
	Network Network
	// ShmBytes is the size of the containers' /dev/shm; 0 means half of the node's memory.
	ShmBytes int64
	// ResultsMode decides the place of a bundle's results.
	ResultsMode spool.ResultsMode
	// DefaultCPUImage and DefaultGPUImage are the references for bundles that name no image, without and with
	// GPUs; empty for the server's choice.
	DefaultCPUImage string `json:"CPUImage"`
	DefaultGPUImage string `json:"GPUImage"`
	// Architecture is that of the queue's nodes, in Go's spelling; empty for the bridge's own.
	Architecture string
	// Worker is the cl-worker for nodes of another architecture; zero for the Policy's.
	Worker sbatch.Program
	// Extra has further options of sbatch.
	Extra []string
}
