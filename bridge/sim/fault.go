package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is a kind of thing that goes wrong.
type Kind uint8

// The kinds of faults.
const (
	// Slurm's answers.
	SubmitLost        Kind = iota // sbatch fails, the job is made
	SubmitLate                    // sbatch fails, the job is made up to a minute later
	SubmitFails                   // sbatch fails, no job is made, and its answer is unclear
	SubmitRefused                 // Slurm refuses the job temporarily
	SubmitGhost                   // Slurm refuses, and leaves the record of a job that failed
	ObserveFails                  // squeue does not answer
	ObserveLate                   // its answer is as old as the question
	JobHidden                     // it does not list a job for minutes, as if its partition were hidden
	AccountingFails               // sacct does not answer
	CancelFails                   // scancel fails, and has had no effect
	CancelLost                    // scancel fails, and has had its effect
	SlurmDown                     // the controller is down for a while, then restarts
	DatabaseDown                  // the accounting database is down for a while
	DatabaseBehind                // it is minutes behind
	DatabaseLosesEnds             // it misses the ends of jobs
	SlurmForgets                  // the controller loses its state: ids are used again
	JobRewritten                  // a plugin of the site rewrites a job's name and comment
	QueueRefused                  // Slurm refuses all jobs of a queue for minutes, as if for good
	JobInvalid                    // a job is pending for minutes, because its account is gone
	// Jobs and nodes.
	AdminRequeues // an administrator requeues a job
	AdminCancels  // an administrator cancels a job
	Preempted     // a job loses its node to another
	BootFails     // a node does not boot for a job
	NodeDies      // a node fails, with all that runs on it
	NodeCut       // Slurm loses a node, and its processes go on
	NodeSick      // no command can be started on a node for minutes
	JobWaits      // a job is held for minutes
	// Workers.
	WorkerDies     // at any line
	WorkerOOM      // the kernel kills it for memory
	BeginUnknown   // the file server does not show which worker began
	BellLost       // a ring of the doorbell is lost
	ExitUnwritable // the exit record cannot be written to the disk
	// The disk, for the bridge.
	RecordLate   // a record is seen seconds after it was written
	ReadFails    // stale file handle
	FenceLost    // an attempt is fenced, and the disk reports a failure
	FenceFails   // it is not fenced, and the disk reports that
	PrepareFails // no space left
	PrepareLost  // an attempt's directory is not made, and the disk reports success
	PrepareSlow  // the disk hangs before the submission
	ReleaseFails // a file cannot be removed
	Purged       // a site's clean-up removes a bundle's records
	// The server.
	CheckInLost    // a check-in does not arrive
	CheckInLate    // it fails, and arrives up to a minute later
	AnswerLost     // its answer does not
	AnswerDoubled  // its messages arrive twice
	AnswerLate     // its messages arrive seconds later
	ServerDown     // the server is down for minutes
	ServerRestored // its database is restored from a minute ago
	Restaged       // the server offers a bundle again that the bridge has
	BundleReturns  // a bundle is deleted, and another user makes one with its UUID
	ClaimFails     // start_bundle fails before or after its effect, or is refused
	UploadFails    // an upload fails before or after its effect, or is refused
	StageFails     // an image or a dependency is not available now
	ConfirmFails   // the server does not answer the question for a bundle's state
	ServerRepeats  // not a fault: the server repeats its messages, as cl-server does
	// The bridge.
	Crash       // between any two lines
	CrashSaving // the ledger fails, with or without the write
	ClockSet    // the clock differs after a restart
	Twin        // a second bridge is started on the same ledger
	LedgerOld   // the ledger is restored from a minute ago
	// The disk once more.
	DiskLow // it is below its low water for minutes
	// The server once more.
	CheckInTooLarge // the server refuses a check-in of more than one or two runs
	// Jobs once more.
	JobRevoked // another cluster of the federation takes a job: Slurm only shows it REVOKED
	// The bridge once more.
	Rival // a second bridge is started with another ledger; the first one may be gone for good
	// Jobs once more.
	JobSuspended // a job is suspended for minutes
	// Slurm's answers once more.
	RequestsLimited // the controller bounds the requests of one user (rl_enable)
	// The server once more.
	EndMisread // the server takes a run that failed for ready
	// Jobs once more.
	LaunchFails // a node cannot launch a job: slurmd cancels it
	// Workers once more.
	StatusUnwritable // a status record cannot be written to the disk
	// The server once more.
	OverQuota // the results exceed what is left of their owner's disk quota
	// Slurm's answers once more.
	JobVanishes  // squeue does not list a running job any more, and neither do the accounts have to know it
	DatabaseLags // the accounting database is an hour behind
	// An administrator at work on jobs and nodes.
	AdminRenames // the name, the comment or both of a job
	AdminHolds   // a waiting job is held, and released minutes later
	AdminMoves   // a waiting job gets another partition
	AdminForces  // a job that must not be requeued is permitted to be, and requeued; it may be held then
	AdminSignals // the batch script gets TERM
	LimitChanged // the time limit of a job, up or down
	NodeDrained  // no job starts on a node for minutes
	// The disk once more.
	CarryFails // the files of an interrupted attempt cannot be copied
	// Packs.
	PackRequeued // Slurm puts a pack back whose members have ended, run and wait; it may run again soon
	kinds
)

// ofSeed stands for the seed as a whole in throws that decide which kind of world it is. It stays the same when a kind of fault is
// added, so that the other seeds stay as they are. Its aspects, from 8 on, are none of a fault's.
const ofSeed Kind = 80

var kindNames = [kinds]string{
	"submit-lost", "submit-late", "submit-fails", "submit-refused", "submit-ghost",
	"observe-fails", "observe-late", "job-hidden", "accounting-fails",
	"cancel-fails", "cancel-lost", "slurm-down", "database-down", "database-behind", "database-loses-ends", "slurm-forgets", "job-rewritten", "queue-refused", "job-invalid",
	"admin-requeues", "admin-cancels", "preempted", "boot-fails", "node-dies", "node-cut", "node-sick", "job-waits",
	"worker-dies", "worker-oom", "begin-unknown", "bell-lost", "exit-unwritable",
	"record-late", "read-fails", "fence-lost", "fence-fails", "prepare-fails", "prepare-lost", "prepare-slow", "release-fails", "purged",
	"check-in-lost", "check-in-late", "answer-lost", "answer-doubled", "answer-late", "server-down", "server-restored", "restaged", "bundle-returns",
	"claim-fails", "upload-fails", "stage-fails", "confirm-fails", "server-repeats",
	"crash", "crash-saving", "clock-set", "twin", "ledger-old",
	"disk-low",
	"check-in-too-large",
	"job-revoked",
	"rival",
	"job-suspended",
	"requests-limited",
	"end-misread",
	"launch-fails",
	"status-unwritable",
	"over-quota",
	"job-vanishes", "database-lags",
	"admin-renames", "admin-holds", "admin-moves", "admin-forces", "admin-signals", "limit-changed", "node-drained",
	"carry-fails",
	"pack-requeued",
}

// Kinds lists the kinds of faults.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds)
	for k := range kinds {
		if k != ServerRepeats {
			all = append(all, k)
		}
	}
	return all
}

// String returns the kind's name on the command line.
func (k Kind) String() string { return kindNames[k] }

// perMille returns the probability, in thousandths, that a chance becomes a fault, in a seed in which the
// kind happens.
func (k Kind) perMille() uint64 {
	switch k {
	case Crash:
		return 8
	case WorkerDies:
		return 40
	case CancelFails, CancelLost, ReleaseFails, ConfirmFails, FenceLost, FenceFails, ExitUnwritable:
		return 400 // there are few chances in a seed
	case RecordLate, BellLost, ObserveLate, JobHidden, JobInvalid, ServerRepeats:
		return 500
	case Rival:
		return 20 // there is one chance in a seed; this one is expensive, because it writes files
	case SlurmForgets, LedgerOld, Twin:
		return 150 // there is one chance in a seed
	case SlurmDown, DatabaseDown, DatabaseBehind, DatabaseLosesEnds, ServerDown, ServerRestored, Purged,
		AdminRequeues, AdminCancels, Preempted, BootFails, LaunchFails, NodeDies, NodeCut, NodeSick, QueueRefused, Restaged, BundleReturns, DiskLow, CheckInTooLarge, JobSuspended, RequestsLimited,
		JobVanishes, DatabaseLags, AdminRenames, AdminHolds, AdminMoves, AdminForces, AdminSignals, LimitChanged, NodeDrained, CarryFails, PackRequeued:
		return 500 // there are a few chances in a seed
	default: // the others are equally likely
	}
	return 120
}

// Fault is one thing that went wrong: the n-th chance of its kind.
type Fault struct {
	Kind Kind
	N    uint32
}

// String returns the fault's name on the command line, such as "submit-lost.2".
func (f Fault) String() string { return f.Kind.String() + "." + strconv.FormatUint(uint64(f.N), 10) }

// none is an empty list of faults.
const none = "none"

// ParseFaults reads a list of faults separated by commas, or "none".
func ParseFaults(list string) ([]Fault, error) {
	faults := []Fault{}
	if list == none {
		return faults, nil
	}
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		name, number, _ := strings.Cut(word, ".")
		kind := slices.Index(kindNames[:], name)
		n, err := strconv.ParseUint(number, 10, 32)
		if kind < 0 || err != nil {
			return nil, fmt.Errorf("read fault %q: want one such as %s", word, Fault{SubmitLost, 2})
		}
		faults = append(faults, Fault{Kind(kind), uint32(n)})
	}
	return faults, nil
}

// FormatFaults returns the list that ParseFaults reads.
func FormatFaults(faults []Fault) string {
	if len(faults) == 0 {
		return none
	}
	words := make([]string, len(faults))
	for i, f := range faults {
		words[i] = f.String()
	}
	return strings.Join(words, ",")
}

// dice are a seed's random numbers. Each answer depends only on the seed, the kind and the number of the
// question of that kind.
type dice struct {
	seed   uint64
	asked  [kinds]uint32
	misc   [matters]uint64
	happen [kinds]bool    // the weather
	only   map[Fault]bool // nil for all
	struck []Fault
}

// mix is splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// throw returns a number for the n-th question of a kind; aspect separates several questions about one
// chance.
func (d *dice) throw(k Kind, n uint32, aspect uint64) uint64 {
	return mix(mix(d.seed^uint64(k)<<56^aspect<<48) ^ uint64(n))
}

// newDice returns the dice of a seed, with its weather.
func newDice(seed uint64) dice {
	d := dice{seed: seed}
	for k := range kinds {
		d.happen[k] = d.throw(k, 0, 1)%5 < 2
	}
	if d.happen[JobHidden] && d.throw(JobHidden, 0, 5)%16 == 0 { // without this it would strike in one of a thousand seeds
		for _, k := range makeAccountsWrong() {
			d.happen[k] = false
		}
	}
	if d.isFair() {
		for k := range kinds {
			d.happen[k] = d.happen[k] && (k == ServerRepeats || d.throw(k, 0, 6)%8 == 0)
		}
		d.happen[PackRequeued] = d.throw(PackRequeued, 0, 1)%2 == 0
	}
	return d
}

// isFair reports whether a seed with packs has fair weather: few kinds of faults happen. In other weather few packs come to run most of
// their members.
func (d *dice) isFair() bool { return d.packs() && d.throw(ofSeed, 0, 15)%2 == 0 }

// strikes takes the next chance of a kind, and reports whether the fault strikes.
func (d *dice) strikes(k Kind) bool {
	n := d.asked[k]
	d.asked[k]++
	if !d.happen[k] || d.throw(k, n, 2)%1000 >= k.perMille() {
		return false
	}
	f := Fault{k, n}
	if d.only != nil && !d.only[f] {
		return false
	}
	d.struck = append(d.struck, f)
	return true
}

// coin tosses a coin that belongs to the last chance of a kind.
func (d *dice) coin(k Kind) bool { return d.throw(k, d.asked[k], 3)%2 == 0 }

// faultDuration returns a time that belongs to the last chance of a kind.
func (d *dice) faultDuration(k Kind, least, most time.Duration) time.Duration {
	return least + time.Duration(d.throw(k, d.asked[k], 4)%uint64(most-least))
}

// matter is a kind of chance that is no fault: durations, users' requests. Each kind has its own sequence,
// so that leaving out a fault changes little else.
type matter uint8

const (
	ofUsers matter = iota
	ofQueues
	ofLives
	ofSteps
	ofEffects
	ofObservation
	ofCheckIns
	ofServer
	ofDisk
	ofWorkers
	ofMishaps
	ofKills
	ofLimits
	ofAdmins
	ofResumes
	ofTimeLimits
	ofArrays
	ofPacks
	ofJoins
	matters
)

// below returns a number below n.
func (d *dice) below(m matter, n uint64) uint64 {
	d.misc[m]++
	return mix(mix(d.seed^0x5eed<<40^uint64(m)<<56)^d.misc[m]) % n
}

// duration returns a time between least and most.
func (d *dice) duration(m matter, least, most time.Duration) time.Duration {
	return least + time.Duration(d.below(m, uint64(most-least)))
}
