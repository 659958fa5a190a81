package codalab

import (
	"time"
)

// CheckIn is a worker's report of itself and its runs, and its request for messages: POST
// /workers/ID/checkin (codalab/rest/workers.py: checkin).
type CheckIn struct {
	Tag              string      `json:"tag"`
	GroupName        *string     `json:"group_name"`
	CPUs             int64       `json:"cpus"`
	GPUs             int64       `json:"gpus"`
	MemoryBytes      int64       `json:"memory_bytes"`
	FreeDiskBytes    int64       `json:"free_disk_bytes"`
	Dependencies     [][2]string `json:"dependencies"`
	Hostname         string      `json:"hostname"`
	Reports          []RunReport `json:"runs"`
	SharedFileSystem bool        `json:"shared_file_system"`
	TagExclusive     bool        `json:"tag_exclusive"`
	ExitAfterNumRuns int64       `json:"exit_after_num_runs"`
	IsTerminating    bool        `json:"is_terminating"`
	Preemptible      bool        `json:"preemptible"`
	// SecondsLeft is the worker's remaining time; 0 if it knows no end. CodaLab's own worker sends none, and
	// CodaLab's own server ignores it.
	SecondsLeft int64 `json:"seconds_left,omitempty"`
	// Instance distinguishes programs that use one worker id. CodaLab's own worker sends none, and CodaLab's
	// own server ignores it.
	Instance string `json:"instance,omitempty"`
	// Closed is the reason why the worker takes no new runs now, in words that may follow a colon; empty
	// while it takes runs. CodaLab's own worker sends none, and CodaLab's own server ignores it
	// (codalab/rest/workers.py: checkin).
	Closed string `json:"closed,omitempty"`
	// Nodes are the sizes of a worker's machines; each run uses one machine. CPUs, GPUs and MemoryBytes are
	// the sums of all machines. Such a worker refuses a run that fits no machine, with its own message. Nodes
	// is empty if the worker is one machine. CodaLab's own worker sends none, and CodaLab's own server
	// ignores them.
	Nodes []NodeSize `json:"nodes,omitempty"`
	// Secrets is set by a worker that gives a run its secrets. Others get no run that names one. CodaLab's own
	// worker sends none, and CodaLab's own server ignores it.
	Secrets bool `json:"secrets,omitempty"`
	// Queue describes a worker that is a queue of a batch system; nil for others.
	Queue *QueueInfo `json:"queue,omitempty"`
	// Together is the number of runs that the worker can give to its batch system by one submission; 0 if each has one
	// of its own. The worker may get as many at once, even if they request more than it has: else a sweep would come to it in parts of the size of
	// its machines. CodaLab's own worker sends none, and CodaLab's own server ignores it.
	Together int64 `json:"together,omitempty"`
}

// NodeSize is the resources of one machine that one run may use.
type NodeSize struct {
	CPUs        int64 `json:"cpus"`
	GPUs        int64 `json:"gpus"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// WorkerInfo is a connected worker as the server lists it: an element of GET /workers/info
// (codalab/rest/workers.py: workers_info).
type WorkerInfo struct {
	UserID    string  `json:"user_id"`
	WorkerID  string  `json:"worker_id"`
	GroupUUID *string `json:"group_uuid"`
	Tag       *string `json:"tag"`
	CPUs      int64   `json:"cpus"`
	CPUsInUse int64   `json:"cpus_in_use"`
	GPUs      int64   `json:"gpus"`
	GPUsInUse int64   `json:"gpus_in_use"`
	// MemoryBytes and FreeDiskBytes are in bytes; CheckInTime is in Unix seconds.
	MemoryBytes   int64 `json:"memory_bytes"`
	FreeDiskBytes int64 `json:"free_disk_bytes"`
	CheckInTime   int64 `json:"checkin_time"`
	// SocketID is the worker's socket in CodaLab's own server; other servers have none.
	SocketID         *int64   `json:"socket_id"`
	RunUUIDs         []string `json:"run_uuids"`
	SharedFileSystem bool     `json:"shared_file_system"`
	TagExclusive     bool     `json:"tag_exclusive"`
	ExitAfterNumRuns int64    `json:"exit_after_num_runs"`
	IsTerminating    bool     `json:"is_terminating"`
	Preemptible      bool     `json:"preemptible"`
}

// WorkerTokenRequest requests a worker token: POST /workers/ID/token. CodaLab's own server has no such route.
type WorkerTokenRequest struct {
	// Seconds is the token's validity. A worker that renews its token leaves it out: the new token is valid
	// for as long as the old one was.
	Seconds int64 `json:"seconds,omitempty"`
}

// UnlimitedRuns is the ExitAfterNumRuns of a worker that does not exit.
const UnlimitedRuns = 999999999

// RunReport is a worker's report of one run.
type RunReport struct {
	UUID      string `json:"uuid"`
	RunStatus string `json:"run_status"`
	// BundleStart is the time of the claim in Unix seconds.
	BundleStart         float64 `json:"bundle_start_time"`
	ContainerTimeTotal  float64 `json:"container_time_total"`
	ContainerTimeUser   float64 `json:"container_time_user"`
	ContainerTimeSystem float64 `json:"container_time_system"`
	// PinnedReference is the image's, once it is known.
	PinnedReference *string `json:"docker_image"`
	State           State   `json:"state"`
	// Remote names the run's place: a worker or a host.
	Remote         string  `json:"remote"`
	ExitCode       *int    `json:"exitcode"`
	FailureMessage *string `json:"failure_message"`
	// Profile has all five stages of Stages: CodaLab's own server silently drops a report that
	// lacks one.
	Profile map[string]StageTimes `json:"bundle_profile_stats"`
	// CPUUsage and MemoryUsage are shares, usually from 0 to 1. DiskUtilization is in bytes.
	CPUUsage        float64 `json:"cpu_usage"`
	MemoryUsage     float64 `json:"memory_usage"`
	DiskUtilization int64   `json:"disk_utilization"`
	// MemoryMax is the run's peak memory so far, in bytes; 0 if unknown. Bundles have a field
	// for it, but CodaLab's own worker does not send it and CodaLab's own server ignores it
	// (codalab/worker/bundle_state.py: BundleCheckinState).
	MemoryMax int64 `json:"memory_max,omitempty"`
	// JobHandle is the run's job in a batch system. Bundles have a field for it, but CodaLab's own worker
	// does not send it and CodaLab's own server ignores it, as with MemoryMax.
	JobHandle string `json:"job_handle,omitempty"`
	// Attempts names the place and the job of each attempt to run the bundle, the last one being the present one. A
	// server adds them to remote_history; CodaLab's own server ignores them.
	Attempts []string `json:"attempts,omitempty"`
	// Cost is the run's cost so far; nil if the worker does not measure it.
	Cost *Cost `json:"cost,omitempty"`
	// Platform is that of the present attempt's command; nil if it has not begun, or if the worker does not tell.
	Platform *Platform `json:"platform,omitempty"`
	// Usage is the run's use at the moment; nil if the worker does not measure it.
	Usage *UsageNow `json:"usage,omitempty"`
}

// StageTimes has the begin and the end of a run's stage, in Unix seconds, and its duration in seconds; nil
// for times that are not known yet.
type StageTimes struct {
	Start   *float64 `json:"start"`
	End     *float64 `json:"end"`
	Elapsed *float64 `json:"elapsed"`
}

// The stages of a run, the keys of RunReport.Profile (codalab/worker/worker_run_state.py:
// RunStage).
const (
	StagePreparing  = "RUN_STAGE.PREPARING"
	StageRunning    = "RUN_STAGE.RUNNING"
	StageCleaningUp = "RUN_STAGE.CLEANING_UP"
	StageUploading  = "RUN_STAGE.UPLOADING_RESULTS"
	StageFinalizing = "RUN_STAGE.FINALIZING"
)

// Stages lists the stages of a run in their order.
func Stages() []string {
	return []string{StagePreparing, StageRunning, StageCleaningUp, StageUploading, StageFinalizing}
}

// NewStageTimes returns the times of a stage; a zero time is not known yet.
func NewStageTimes(start, end time.Time) StageTimes {
	var t StageTimes
	if start.IsZero() {
		return t
	}
	s := UnixSeconds(start)
	t.Start = &s
	if end.IsZero() {
		return t
	}
	e, elapsed := UnixSeconds(end), end.Sub(start).Seconds()
	t.End, t.Elapsed = &e, &elapsed
	return t
}

// UnixSeconds is a time as the protocol writes it.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// MessageType is the kind of a Message.
type MessageType string

// The messages that a server sends to a worker.
const (
	MessageRun           MessageType = "run"
	MessageKill          MessageType = "kill"
	MessageMarkFinalized MessageType = "mark_finalized"
	MessageRead          MessageType = "read"
	MessageWrite         MessageType = "write"
	MessageNetcat        MessageType = "netcat"
)

// Message is a server's answer to a check-in. Type determines which fields are set.
type Message struct {
	Type MessageType `json:"type"`
	// UUID names the bundle; a run message has it in Bundle.
	UUID string `json:"uuid,omitempty"`

	Bundle    *RunBundle `json:"bundle,omitempty"`    // run
	Resources *Resources `json:"resources,omitempty"` // run

	KillMessage string `json:"kill_message,omitempty"` // kill

	SocketID int64     `json:"socket_id,omitempty"` // read, netcat
	Path     string    `json:"path,omitempty"`      // read
	ReadArgs *ReadArgs `json:"read_args,omitempty"` // read

	Subpath string `json:"subpath,omitempty"` // write
	String  string `json:"string,omitempty"`  // write

	Port    int    `json:"port,omitempty"`    // netcat
	Message string `json:"message,omitempty"` // netcat
}

// RunBundle is the bundle in a run message.
type RunBundle struct {
	UUID         string          `json:"uuid"`
	Type         string          `json:"bundle_type"`
	OwnerID      string          `json:"owner_id"`
	Command      string          `json:"command"`
	State        State           `json:"state"`
	Frozen       *string         `json:"frozen"`
	IsAnonymous  bool            `json:"is_anonymous"`
	Metadata     Metadata        `json:"metadata"`
	Args         string          `json:"args"`
	Dependencies []RunDependency `json:"dependencies"`
	// Location is set only for a worker that shares the server's disk.
	Location *string `json:"location"`
	// OwnerName and OwnerGroups are the name of the owner, and the names of the owner's groups that the worker's user
	// may know. CodaLab's own server sends neither, and CodaLab's own worker reads neither.
	OwnerName   string   `json:"owner_name,omitempty"`
	OwnerGroups []string `json:"owner_groups,omitempty"`
}

// RunDependency is a dependency in a run message.
type RunDependency struct {
	Dependency
	Location *string `json:"location"`
}

// Resources is a run's requests, in a run message. Time is in seconds, Memory and Disk are in
// bytes; 0 means no limit. ImageReference is the reference of the image. Decoded numbers are between 0 and
// MaxCount, MaxSeconds or MaxBytes.
type Resources struct {
	CPUs           int64  `json:"cpus"`
	GPUs           int64  `json:"gpus"`
	ImageReference string `json:"docker_image"`
	Time           int64  `json:"time"`
	Memory         int64  `json:"memory"`
	Disk           int64  `json:"disk"`
	Network        bool   `json:"network"`
	Tag            string `json:"tag"`
	TagExclusive   bool   `json:"tag_exclusive"`
	RunsLeft       *int64 `json:"runs_left"`
	// Invalid names the number that is out of range; empty if all are in range. A server does not send it.
	Invalid string `json:"invalid,omitempty"`
}

// ReadArgs is the request in a read message. Zeros are encoded too: CodaLab's own worker needs
// the numbers that belong to Type.
type ReadArgs struct {
	Type ReadType `json:"type"`

	Depth int `json:"depth"` // get_target_info
	// First and After choose some of a directory's entries, if First is not 0: the first ones by name after a name. CodaLab's
	// own workers know no such choice, and send all.
	First int    `json:"first,omitempty"`
	After string `json:"after,omitempty"`

	Offset int64 `json:"offset"` // read_file_section
	Length int64 `json:"length"`

	HeadLines      int    `json:"num_head_lines"` // summarize_file
	TailLines      int    `json:"num_tail_lines"`
	MaxLineLength  int    `json:"max_line_length"`
	TruncationText string `json:"truncation_text"`
}

// ReadType is the kind of a read message (codalab/worker/reader.py).
type ReadType string

// The kinds of read messages. The reply to get_target_info is JSON, the others are gzip
// streams; a directory's is a tar archive.
const (
	ReadTargetInfo  ReadType = "get_target_info"
	ReadFile        ReadType = "stream_file"
	ReadDirectory   ReadType = "stream_directory"
	ReadFileSection ReadType = "read_file_section"
	ReadSummary     ReadType = "summarize_file"
)

// ReadReply replies to a read message: the target's description or an error
// (codalab/worker/worker.py: read).
type ReadReply struct {
	TargetInfo   *TargetInfo `json:"target_info,omitempty"`
	ErrorCode    int         `json:"error_code,omitempty"`
	ErrorMessage string      `json:"error_message,omitempty"`
}

// TargetInfo describes a file, directory or symbolic link in a bundle's contents
// (codalab/worker/download_util.py: compute_target_info).
type TargetInfo struct {
	Name string     `json:"name"`
	Size int64      `json:"size"`
	Perm int        `json:"perm"`
	Type TargetType `json:"type"`
	// Link is a symbolic link's target.
	Link string `json:"link,omitempty"`
	// Contents are a directory's entries, to the requested depth; nil, and not encoded, if
	// none was requested.
	Contents []TargetInfo `json:"contents,omitzero"`
	// Entries is the number of a directory's entries, of which Contents has some; 0 if it has all.
	Entries int `json:"entries,omitempty"`
	// Resolved is the target after following dependencies. Only the outermost description has
	// it.
	Resolved *Target `json:"resolved_target,omitempty"`
}

// TargetType is the type of a target.
type TargetType string

// The types of targets.
const (
	TargetFile      TargetType = "file"
	TargetDirectory TargetType = "directory"
	TargetLink      TargetType = "link"
)

// Target is a path in a bundle's contents; an empty Subpath means all of them.
type Target struct {
	BundleUUID string `json:"bundle_uuid"`
	Subpath    string `json:"subpath"`
}

// String prints a target as users type it: UUID or UUID/path.
func (t Target) String() string {
	if t.Subpath == "" {
		return t.BundleUUID
	}
	return t.BundleUUID + "/" + t.Subpath
}

// StartBundle is a worker's claim of a bundle: POST /workers/ID/start_bundle/UUID. The answer
// is true if the worker has the bundle, and false if the server has taken it back.
type StartBundle struct {
	Hostname  string `json:"hostname"`
	StartTime int64  `json:"start_time"`
}

// StartBundles are claims of several bundles by a worker: POST /workers/ID/start_bundles. CodaLab's own server has no such
// route.
type StartBundles struct {
	Bundles []BundleStart `json:"bundles"`
}

// BundleStart is the claim of one bundle.
type BundleStart struct {
	UUID string `json:"uuid"`
	StartBundle
}

// MostStarts bounds the bundles of a StartBundles.
const MostStarts = 1000

// StartedBundles are the answers to a StartBundles, in its order.
type StartedBundles struct {
	Bundles []StartedBundle `json:"bundles"`
}

// StartedBundle is the answer to one claim.
type StartedBundle struct {
	UUID string `json:"uuid"`
	// Started is the answer of start_bundle.
	Started bool `json:"started"`
	// Status and Message are its refusal; the zero values for none.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
}
