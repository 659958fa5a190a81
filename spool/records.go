package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// Format is the version of the records. A reader refuses other versions. Bridge and worker always have the
// same version, because the bridge copies the worker that its jobs run.
const Format = 1

// The files of an attempt's directory.
const (
	specName    = "spec.json"
	startedName = "started"
	statusName  = "status.json"
	exitName    = "exit.json"
	outputName  = "slurm.out"

	timeLimitName = "limit.json"
	stopName      = "stop"
)

// AttemptFiles returns the names of the files of an attempt that people may want to read, in the order of their
// beginning. The specification is not among them: it has all of the command's environment.
func AttemptFiles() []string {
	return []string{startedName, statusName, timeLimitName, exitName, outputName}
}

// ErrNone means that a record does not exist, or is not visible yet. It proves nothing, because the disk may
// show a record late.
var ErrNone = errors.New("no such record")

// ErrGone means that the disk is mounted and has no directory for the attempt: it was never made, or was
// removed.
var ErrGone = errors.New("the attempt's directory is not on the shared disk")

// Spec is a worker's specification of an attempt. Paths are absolute, on the shared disk.
type Spec struct {
	Format  int    `json:"format"`
	Bundle  string `json:"bundle"`
	Attempt int    `json:"attempt"`
	// SubmissionName names the submission in Slurm.
	SubmissionName string `json:"mark"`
	// Submission tells the submission from all others, including those of the same name. The batch script
	// has it too (worker.Worker.Submission).
	Submission string `json:"submission,omitempty"`
	// Pack is set for a member of a pack, which shares its Slurm job with other members.
	Pack    bool   `json:"pack,omitempty"`
	Command string `json:"command"`
	Inputs
	// RunDir has the command's output while it runs, and its files afterwards. In the container it is
	// /<uuid>, unless WorkingDirDisk is WorkingDirLocal.
	RunDir         string         `json:"run_dir"`
	WorkingDirDisk WorkingDirDisk `json:"work_dir,omitempty"`
	// Resumed is set if RunDir has the files of an earlier attempt (Disk.Carry), with which the command goes on.
	Resumed bool `json:"resumed,omitempty"`
	GPUs    int  `json:"gpus"`
	// MemoryBytes and DiskBytes are limits; 0 means none. Seconds is the time limit of the command; 0
	// means none but Slurm's.
	MemoryBytes int64   `json:"memory_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
	Seconds     float64 `json:"seconds"`
	// KillGraceSeconds is the time from the TERM that stops the command until the KILL; 0 means package
	// container's default.
	KillGraceSeconds float64 `json:"kill_seconds,omitempty"`
	// SignalSeconds is the time before its time limit at which the command gets TERM; 0 means at the limit.
	SignalSeconds float64 `json:"signal_seconds,omitempty"`
	// Network is set if the command gets a network, and HostNetwork if that is the node's own, with its loopback
	// interface. NetworkDenied is set if the bundle requested a network, and its queue gives none.
	Network       bool `json:"network"`
	HostNetwork   bool `json:"host_network,omitempty"`
	NetworkDenied bool `json:"network_denied,omitempty"`
	// MaxProcesses limits the processes and threads of the container; 0 means no limit.
	MaxProcesses int64 `json:"max_processes,omitempty"`
	// ShmBytes is the size of the container's /dev/shm; 0 means half of the memory.
	ShmBytes int64 `json:"shm_bytes,omitempty"`
	// Scratch is a directory on the node's own disk.
	Scratch string `json:"scratch"`
	// Runtime is the runtime of the container; empty means Auto.
	Runtime runtimes.Name `json:"runtime,omitempty"`
	// Environment has the variables that the site gives the command, as NAME=value. A secret of the bundle has priority.
	Environment []string `json:"environment,omitempty"`
	// Binds are the site's directories in the container.
	Binds []Bind `json:"binds,omitempty"`
	// Secrets names the secrets of the bundle. The worker takes their values from a file of their own
	// (Layout.TakeSecrets).
	Secrets []string `json:"secrets,omitempty"`
}

// Bind shows Source, a directory or file of the nodes, read-only at Target, a path of the container. Both are absolute.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Ran describes the platform of a container's command: the runtime, the reason for its choice, the versions and the GPUs. The
// records of older workers have the first two alone.
type Ran struct {
	Runtime runtimes.Name `json:"runtime"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	// RuntimeVersion is the version of the runtime's program; empty if it is not known, and for the built-in runtime.
	RuntimeVersion string `json:"runtime_version,omitempty"`
	// Worker is the version of this software.
	Worker string `json:"worker,omitempty"`
	// Cluster is Slurm's name of the cluster; empty outside of Slurm.
	Cluster string `json:"cluster,omitempty"`
	// GPUs has the model of each GPU, an empty text for one of unknown model. GPUDriver is the version of their driver.
	GPUs      []string `json:"gpus,omitempty"`
	GPUDriver string   `json:"gpu_driver,omitempty"`
}

// Inputs are the inputs of a bundle on the shared disk, which its job needs.
type Inputs struct {
	// SIF is the path of the image's SIF. An engine runs the image from its own store, and SIF
	// is empty.
	SIF string `json:"image"`
	// PinnedReference is the image's reference with the digest of its content, NAME@sha256:….
	// For an image of an engine's store that has no digest, it is the image's id there.
	PinnedReference string `json:"image_digest"`
	// SIFFile is set if SIF does not belong to the bridge, so that others may
	// change it. Its path had no symbolic link when it was staged.
	SIFFile      *SIFFile     `json:"image_file,omitempty"`
	Dependencies []Dependency `json:"dependencies,omitempty"`
}

// SIFFile describes a SIF that is used in place, at the time of its staging.
type SIFFile struct {
	Size int64 `json:"size"`
	// Modified is its time of modification, in nanoseconds since 1970.
	Modified int64 `json:"modified"`
}

// Dependency shows Source, a file or directory on the shared disk, read-only at ChildPath of the bundle's
// working directory. A ChildPath that begins with a slash is a path of the container.
type Dependency struct {
	ChildPath string `json:"child_path"`
	Source    string `json:"source"`
	// InPlace is set if Source is not a copy of the bridge's, so that others may change it. Its path had
	// no symbolic link when it was staged, and must have none when it is bound.
	InPlace bool `json:"in_place,omitempty"`
	// Digest is that of the contents (codalab.InputDigest); empty for data that is used where it lies.
	Digest string `json:"digest,omitempty"`
	// Link describes the data of a link bundle at the time of its staging; nil for other bundles.
	Link *Link `json:"link,omitempty"`
}

// Link is a dependency on a link bundle: its contents lie on the cluster's disk.
type Link struct {
	// Bundle is a link to Path.
	Bundle string `json:"bundle"`
	Path   string `json:"path"`
	// Note is a sentence for the researcher if the data has changed since its first use.
	Note string `json:"note,omitempty"`
	Fingerprint
}

// Fingerprint describes a file, or a directory with its contents, by names, sizes and times only.
type Fingerprint struct {
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Bytes       int64 `json:"bytes"`
	// Newest is the latest time of modification of a file.
	Newest time.Time `json:"newest,omitzero"`
	// Digest is the SHA-256, in lower-case hexadecimal, over the type, the path, the size and the time of
	// each entry, in order.
	Digest string `json:"digest"`
	// Partial is set if it covers only the first Entries.
	Partial bool  `json:"partial,omitempty"`
	Entries int64 `json:"entries"`
}

// Started is the record of an attempt's start. Attempt.Begin or Attempt.Fence writes it once, and it never
// changes.
type Started struct {
	Format int `json:"format"`
	// Token is 128 random bits in hexadecimal, from the process that took the attempt.
	Token string `json:"token"`
	// Fenced is set if a bridge took the attempt so that no worker begins it.
	Fenced  bool   `json:"closed,omitempty"`
	Node    string `json:"node,omitempty"`
	Job     string `json:"job,omitempty"`
	Restart string `json:"restart,omitempty"`
	// Submission is the submission of a job that several bundles share or of which they share the array (Spec.Submission), whose comment
	// names no bundle; empty for other jobs.
	Submission string    `json:"submission,omitempty"`
	At         time.Time `json:"at"`
}

// Stage is a part of a worker's run.
type Stage string

// The stages of a worker.
const (
	StageStarting  Stage = "starting"  // the container is being set up
	StageUnpacking Stage = "unpacking" // the image is being unpacked for that, because the node cannot mount it
	StageRunning   Stage = "running"   // the command runs
	StageCopying   Stage = "copying"   // the command has ended, and its working directory is copied (see WorkingDirDisk)
)

// Usage is the attempt's usage so far.
type Usage struct {
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`
	MemoryBytes   int64   `json:"memory_bytes"`
	MemoryPeak    int64   `json:"memory_peak_bytes"`
	DiskBytes     int64   `json:"disk_bytes"`
	// GPU is zero if the GPUs cannot be measured.
	GPU GPUUsage `json:"gpu,omitzero"`
}

// GPUUsage is an attempt's usage of its GPUs, from samples.
type GPUUsage struct {
	// Busy is the share of the time in which they worked, from 0 to 1, as the mean of its GPUs, in the
	// last sample; BusyMean is the mean of all samples so far.
	Busy     float64 `json:"busy"`
	BusyMean float64 `json:"busy_mean"`
	// MemoryBytes and MemoryPeak are sums over its GPUs.
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryPeak  int64 `json:"memory_peak_bytes"`
	Samples     int   `json:"samples"`
	// Idle is the number of its GPUs that all samples since IdleSince showed at 0 %, over some minutes. Both are
	// zero if there are none, or if it is not known which GPU is which.
	Idle      int       `json:"idle,omitempty"`
	IdleSince time.Time `json:"idle_since,omitzero"`
}

// LongestStatusPause is the longest pause between two status records of a worker that lives.
const LongestStatusPause = time.Minute

// Status is a worker's report while it runs.
type Status struct {
	Format int       `json:"format"`
	Token  string    `json:"token"`
	Stage  Stage     `json:"stage"`
	At     time.Time `json:"at"`
	// CommandStarted is the start of the command; zero before.
	CommandStarted time.Time `json:"command_started"`
	Usage          Usage     `json:"usage"`
	// Ran is zero until a runtime is chosen.
	Ran Ran `json:"ran,omitzero"`
	// Waits is a phrase about a cluster that does not start the container yet; usually empty.
	Waits string `json:"waits,omitempty"`
	// Container is zero until the command has begun.
	Container Container `json:"container,omitzero"`
}

// Container is the place of a container on its node, through which its ports can be reached there.
type Container struct {
	Runtime runtimes.Name `json:"runtime"`
	// Name is an engine's name for it; empty for other runtimes.
	Name string `json:"name,omitempty"`
	// PID is the process id of an ancestor of all its processes, and Started the start of that process, in
	// ticks since the node's start (proc_pid_stat(5)). Both are zero if an engine does not give the id.
	PID     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"`
	// Network is set if it has the node's own network.
	Network bool `json:"network,omitempty"`
}

// Cause is the cause of an end.
type Cause string

// The causes of an end.
const (
	CauseSucceeded Cause = "succeeded"
	CauseUser      Cause = "user"     // exit status, kill, a wrong reference of an image
	CauseLimit     Cause = "limit"    // time, memory, disk
	CausePlatform  Cause = "platform" // a node, a disk, Slurm, this software
)

// Exit is the record of an attempt's end.
type Exit struct {
	Format int    `json:"format"`
	Token  string `json:"token"`
	Cause  Cause  `json:"cause"`
	// ExitCode is the command's exit status, or 128 plus the number of the signal that ended it; nil if the
	// command never ran.
	ExitCode *int `json:"exit_code"`
	// Failure is one sentence for the researcher; empty if the exit status says enough.
	Failure string `json:"failure,omitempty"`
	// Note is a sentence about a difference from a usual run, for example a reason for its length; usually
	// empty.
	Note string `json:"note,omitempty"`
	// Terminated is set if the job got TERM (from scancel, a preemption or Slurm's time limit)
	// before the command had ended.
	Terminated bool `json:"terminated,omitempty"`
	// TimedOut is set if the worker ended the command for its time limit.
	TimedOut bool `json:"timed_out,omitempty"`
	// NotStarted is set if the command certainly never began: its container could not be prepared or set
	// up.
	NotStarted bool `json:"not_started,omitempty"`
	// NodeAtFault is set, with NotStarted, if the node is proven to be at fault.
	NodeAtFault bool `json:"node_at_fault,omitempty"`
	// SharedDiskFull is set, with NotStarted, if the shared disk had no room. Then every other node would
	// fail, too.
	SharedDiskFull bool `json:"shared_disk_full,omitempty"`
	// CommandStarted is the start of the command, and CommandEnded the end of its container; zero if it
	// had none.
	CommandStarted time.Time `json:"command_started"`
	CommandEnded   time.Time `json:"command_ended"`
	// At is the time of the record, by the node's clock; zero in the records of older workers. The job ends
	// soon after it.
	At    time.Time `json:"at,omitzero"`
	Usage Usage     `json:"usage"`
	// Ran is zero if no container began.
	Ran Ran `json:"ran,omitzero"`
}

// IsCommandStatus reports whether an exit status of `cl-worker exec` is the command's, even without an exit
// record. A worker's own ends have 120 to 125, and those of the Go runtime 2; a status above 127 may be a
// signal's.
func IsCommandStatus(status int) bool { return status >= 0 && status < 120 && status != 2 }

// WriteSpec publishes the specification. It makes the attempt's directory, the run directory and their
// parents, and nothing above. A repetition is harmless.
func (a Attempt) WriteSpec(s Spec) error {
	for _, dir := range []string{a.Dir, s.RunDir} {
		if err := makeWithParent(dir); err != nil {
			return fmt.Errorf("make attempt directory: %w", err)
		}
	}
	s.Format = Format
	if err := atomicfile.WriteJSON(a.SpecPath(), s); err != nil { // it flushes the directory, too
		return err
	}
	// A crash of the file server after a start must not remove the attempt's directory.
	bundle := filepath.Dir(a.Dir)
	return errors.Join(atomicfile.SyncDir(bundle), atomicfile.SyncDir(filepath.Dir(bundle)))
}

// makeWithParent makes a directory and its parent. If the shared disk is not mounted the directories above
// are missing, and makeWithParent must not make them.
func makeWithParent(dir string) error {
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// ReadSpec reads the specification.
func (a Attempt) ReadSpec() (Spec, error) { return readRecord[Spec](a.SpecPath()) }

// ReadStarted reads the record of the attempt's start.
func (a Attempt) ReadStarted() (Started, error) { return readRecord[Started](a.path(startedName)) }

// WriteStatus publishes the worker's status.
func (a Attempt) WriteStatus(s Status) error {
	s.Format = Format
	return atomicfile.WriteJSON(a.path(statusName), s)
}

// ReadStatus reads the worker's status.
func (a Attempt) ReadStatus() (Status, error) { return readRecord[Status](a.path(statusName)) }

// WriteExit publishes the exit record.
func (a Attempt) WriteExit(e Exit) error {
	e.Format = Format
	return atomicfile.WriteJSON(a.path(exitName), e)
}

// ReadExit reads the exit record.
func (a Attempt) ReadExit() (Exit, error) { return readRecord[Exit](a.path(exitName)) }

// record is a record that readRecord can read. check returns an error for an invalid one.
type record interface{ check() error }

func (s Spec) check() error    { return checkFormat(s.Format) }
func (s Started) check() error { return checkHead(s.Format, s.Token) }
func (s Status) check() error  { return checkHead(s.Format, s.Token) }

func (e Exit) check() error {
	if err := checkHead(e.Format, e.Token); err != nil {
		return err
	}
	switch e.Cause {
	case CauseSucceeded, CauseUser, CauseLimit, CausePlatform:
		return nil
	}
	return fmt.Errorf("unknown cause %q", e.Cause)
}

// checkHead also refuses an empty token, because the tokens of two damaged records would be equal.
func checkHead(format int, token string) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	if token == "" {
		return errors.New("no token")
	}
	return nil
}

func checkFormat(format int) error {
	if format != Format {
		return fmt.Errorf("format %d, want %d: written by another version", format, Format)
	}
	return nil
}

func readRecord[T record](path string) (T, error) {
	var none T
	data, err := smallfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, ErrNone
	}
	if err != nil {
		return none, fmt.Errorf("read record: %w", err)
	}
	read, err := decode[T](data)
	if err != nil {
		return none, fmt.Errorf("read record %s: %w", path, err)
	}
	return read, nil
}

// decode returns an error for everything but a whole record of this Format.
func decode[T record](data []byte) (T, error) {
	var read, none T
	if err := json.Unmarshal(data, &read); err != nil {
		return none, err
	}
	if err := read.check(); err != nil {
		return none, err
	}
	return read, nil
}
