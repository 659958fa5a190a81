package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/spool"
)

// SubmitWithin is how long after a row's Submitted its sbatch may be begun. A
// Submit that comes later asks nothing of Slurm and says that it was refused.
const SubmitWithin = 10 * time.Second

// Policy is what the site and the bridge's owner have decided beforehand.
type Policy struct {
	// Bridge is the bridge's own six hexadecimal digits, part of each mark.
	Bridge string
	// Owner is the name under which jobs run for people to see: the CodaLab
	// user of a personal bridge.
	Owner string
	// Layout is the shared directory.
	Layout spool.Layout
	// Worker is the path of the cl-worker that jobs run.
	Worker string
	// Queues are the queues by name.
	Queues map[string]Queue

	// SubmitGrace is how much later than a submission's begin a snapshot must
	// have been asked for to prove that the submission made no job. It is
	// above SubmitWithin and the longest life of an sbatch together.
	SubmitGrace time.Duration
	// OrphanGrace is how long a job of the bridge without a row is left alone.
	// It is above SubmitGrace. CancelStrays says whether such a job is
	// cancelled then, or only told of.
	OrphanGrace   time.Duration `json:"StrayGrace"`
	CancelOrphans bool          `json:"CancelStrays"`
	// RecordAge is how long Slurm surely keeps an ended job in sight
	// (MinJobAge). Without accounting, a younger snapshot that lacks a job is
	// evidence by itself.
	RecordAge time.Duration
	// Accounting is set where an accounting database can be asked.
	Accounting bool
	// Settle is how long the shared disk may take to show a record that was
	// written before a job ended.
	Settle time.Duration
	// StuckFor is how long Slurm must have given a reason for which a job can
	// never start before the bundle fails for it.
	StuckFor time.Duration
	// StagePatience is how long staging is tried again before the bundle
	// fails, CollectPatience the same for collecting.
	StagePatience, CollectPatience time.Duration
	// OutagePatience is how long staging waits, beyond StagePatience, for a
	// server, a registry or a disk that is away.
	OutagePatience time.Duration
	// AckPatience is the longest pause between two questions to a server that has
	// a verdict and has not acknowledged it. The first pauses are shorter.
	AckPatience time.Duration
	// MaxAttempts bounds the attempts of one bundle.
	MaxAttempts int
	// KeepAfterAck is how long results stay on the shared disk after the
	// server acknowledged them.
	KeepAfterAck time.Duration
	// LowWater is how much of the shared disk has to be free for bundles to be
	// claimed and their inputs to be brought in. What has its inputs goes on:
	// only when it has ended does it make room.
	LowWater LowWater
}

// RetryBegun says whether a bundle that began may begin again.
type RetryBegun string

// The choices for RetryBegun.
const (
	RetryNever      RetryBegun = "never"
	RetryOnPlatform RetryBegun = "on_platform"
)

// Queue is one configured queue: a tag of CodaLab's on one side, a place in
// Slurm on the other.
type Queue struct {
	Name string
	// Tag is what bundles ask for with request_queue.
	Tag string
	// Group is a group of users at the CodaLab server. The queue takes its members'
	// bundles as well as those of the bridge's own user. It is empty for no group.
	Group string
	// Default is set for the queue that takes bundles which name none.
	Default bool

	Partition, Account, QOS, WCKey, Reservation, Constraint string
	// GPUType is the gres type of request_gpus; empty for any.
	GPUType string
	// DefaultTime is the limit of a bundle that asks for none, 0 for MaxTime.
	// MaxTime is the largest that may be asked for, 0 for no bound.
	DefaultTime, MaxTime time.Duration
	// TimeGrace is added to a bundle's limit for Slurm's, so that the
	// worker's own timer comes first.
	TimeGrace time.Duration
	// MemoryOverhead is added to request_memory, in bytes, for what runs
	// around the command.
	MemoryOverhead int64
	// MaxInFlight bounds the queue's jobs in Slurm; 0 for no bound.
	MaxInFlight int
	// RetryBegun says whether a begun bundle may begin again.
	RetryBegun RetryBegun
	// Scratch is a directory on the nodes' own disk, WorkDir says whether
	// working directories lie there too.
	Scratch string
	WorkDir spool.WorkDir
	// Runtime is how the queue's containers are to be run.
	Runtime runtimes.Name
	// Results says what becomes of what a bundle leaves.
	Results spool.Results
	// CPUImage and GPUImage are the images of bundles that name none, without
	// GPUs and with some; empty for the server's choice.
	CPUImage, GPUImage string
	// Architecture is that of the queue's nodes, in Go's spelling; empty is the
	// bridge's own.
	Architecture string
	// Worker is the path of the cl-worker that the queue's jobs run, where that is
	// not the Policy's: its nodes are of another architecture.
	Worker string
	// Extra are further options of sbatch.
	Extra []string
}

// Health is what stands in the way of submissions.
type Health struct {
	// Budget is how many submissions the request rate allows now.
	Budget int
	// Observed is set once Slurm has been seen as a whole since the bridge's
	// start: before, it is not known whether the ledger is up to date.
	Observed bool
}
