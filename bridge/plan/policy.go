package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// SubmitWithin is how long after a row's SubmittedAt its sbatch may be started. A later Submit
// asks nothing of Slurm and counts as refused for now.
const SubmitWithin = 10 * time.Second

// Policy is what the site and the bridge's owner have configured.
type Policy struct {
	// Bridge is the bridge's own six hexadecimal digits. They are part of each submission name.
	Bridge string
	// Owner is the name that people see in the jobs' names: the CodaLab user of a personal
	// bridge.
	Owner string
	// Layout is the shared directory.
	Layout spool.Layout
	// Worker is the path of the cl-worker that jobs run.
	Worker string
	// Queues are the queues by name.
	Queues map[string]Queue

	// SubmitGrace is how long after the start of a submission a snapshot must be asked for to
	// prove that the submission made no job. It is longer than SubmitWithin and the longest
	// life of an sbatch together.
	SubmitGrace time.Duration
	// OrphanGrace is how long the bridge leaves an orphan job alone: a job of its own for which
	// there is no row. It is longer than SubmitGrace. With CancelOrphans such a job is cancelled
	// then; without, it is only logged.
	OrphanGrace   time.Duration
	CancelOrphans bool
	// RecordAge is how long Slurm is certain to show an ended job (MinJobAge). Without accounting, a
	// snapshot that is younger than this and lacks a job proves that there is none.
	RecordAge time.Duration
	// Accounting is set if the site has an accounting database.
	Accounting bool
	// Settle is how long the shared disk may take to show a record that was written before a
	// job ended.
	Settle time.Duration
	// StuckFor is how long Slurm must give a reason for which a job can never start before the
	// bundle fails for it.
	StuckFor time.Duration
	// StagePatience is how long failing staging is tried again before the bundle fails,
	// CollectPatience the same for collecting.
	StagePatience, CollectPatience time.Duration
	// StageTries bounds the tries of staging that fails for no outage and no full disk, too; 0 leaves that
	// to StagePatience.
	StageTries int
	// OutagePatience is the same for staging while a server, a registry or a disk is unreachable.
	OutagePatience time.Duration
	// LongestAckPause is the longest pause between two questions to a server that has a verdict and
	// has not acknowledged it. The first pauses are shorter.
	LongestAckPause time.Duration
	// MaxAttempts bounds the attempts of one bundle.
	MaxAttempts int
	// KeepAfterAck is how long results stay on the shared disk after the server has
	// acknowledged them.
	KeepAfterAck time.Duration
	// LowWater is how much of the shared disk must be free for the bridge to claim bundles and
	// to stage inputs. A bundle that has its inputs goes on: it makes room only by ending.
	LowWater LowWater
}

// RetryBegun says when a bundle that began may begin again.
type RetryBegun string

// The choices for RetryBegun.
const (
	RetryNever      RetryBegun = "never"
	RetryOnPlatform RetryBegun = "on_platform"
)

// Queue is one configured queue: a tag of CodaLab's on one side, a place in Slurm on the other.
type Queue struct {
	Name string
	// Tag is what bundles ask for with request_queue.
	Tag string
	// Group is a group of users at the CodaLab server. The queue takes its members'
	// bundles as well as those of the bridge's own user. It is empty for no group.
	Group string
	// Identity is the queue's worker id at the server; empty for the bridge's name and the queue's.
	Identity string
	// Default is set for the queue that takes bundles without a tag.
	Default bool

	Partition, Account, QOS, WCKey, Reservation, Constraint string
	// GPUType is the gres type of request_gpus; empty for any.
	GPUType string
	// Nodes are the sizes of the queue's nodes, as Slurm last showed them; empty while they are not known.
	Nodes sbatch.NodeSizes
	// DefaultTime is the time limit of a bundle that sets none; 0 for MaxTime. MaxTime is the
	// maximum allowed; 0 for no bound.
	DefaultTime, MaxTime time.Duration
	// TimeGrace is added to a bundle's limit to give Slurm's, so that the worker's own timer
	// fires first.
	TimeGrace time.Duration
	// KillGrace is the time of a command between TERM and KILL; 0 for the worker's default,
	// which is too short for a checkpoint. With a KillGrace Slurm tells the worker at once of a
	// preemption.
	KillGrace time.Duration
	// MemoryOverhead is added to request_memory, in bytes, for the processes around the
	// command.
	MemoryOverhead int64
	// MaxInFlight bounds the queue's jobs in Slurm; 0 for no bound.
	MaxInFlight int
	// RetryBegun says when a begun bundle may begin again.
	RetryBegun RetryBegun
	// Path is directories on the nodes where jobs look for programs first.
	Path []string
	// Scratch is a directory on the nodes' own disk. WorkDir says whether working directories
	// are on it too.
	Scratch string
	WorkDir spool.WorkDir
	// Runtime is how the queue's containers are to be run.
	Runtime runtimes.Name
	// ShmBytes is the size of the containers' /dev/shm; 0 means half of the node's memory.
	ShmBytes int64
	// Results says what happens to a bundle's results.
	Results spool.Results
	// CPUImage and GPUImage are the images of bundles without one, for runs without and with
	// GPUs; empty for the server's choice.
	CPUImage, GPUImage string
	// Architecture is that of the queue's nodes, in Go's spelling; empty for the bridge's own.
	Architecture string
	// Worker is the path of the cl-worker for nodes of another architecture; empty for the
	// Policy's.
	Worker string
	// Extra are further options of sbatch.
	Extra []string
}
