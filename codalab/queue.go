package codalab

// QueueInfo describes a worker that is a queue of a batch system, in its check-ins. CodaLab's own worker sends none, and
// CodaLab's own server ignores it (codalab/rest/workers.py: checkin).
type QueueInfo struct {
	// GPUTypes has the most GPUs of each type that one run can get. GPUs without a type are in CheckIn.Nodes alone.
	GPUTypes map[string]int64 `json:"gpu_types,omitempty"`
	// MaxSeconds is the longest time that a run may request; 0 for no bound. DefaultSeconds is the time limit of a run
	// that requests none; 0 for none.
	MaxSeconds     int64 `json:"max_seconds,omitempty"`
	DefaultSeconds int64 `json:"default_seconds,omitempty"`
	// PartitionSeconds is the batch system's own bound on time limits, where MaxSeconds is 0; 0 for none. It has
	// exceptions, so that it refuses no run.
	PartitionSeconds int64 `json:"partition_seconds,omitempty"`
	// Elastic is set if the batch system may start larger nodes than CheckIn.Nodes shows. A request that fits none of
	// them may then run all the same.
	Elastic bool `json:"elastic,omitempty"`
	// CPUImage and GPUImage are the references for runs that name no image, without and with GPUs; empty for those of
	// the server.
	CPUImage string `json:"cpu_image,omitempty"`
	GPUImage string `json:"gpu_image,omitempty"`
	// Running counts the queue's runs whose commands have begun, and Waiting those that have not begun.
	Running int64 `json:"running,omitempty"`
	Waiting int64 `json:"waiting,omitempty"`
	// Nodes counts the nodes that work, and IdleNodes those of them without any job, also of other people. Both are 0
	// while they are not known.
	Nodes     int64 `json:"nodes,omitempty"`
	IdleNodes int64 `json:"idle_nodes,omitempty"`
	// WaitSeconds is the time for which a new run probably waits in the batch system; nil if there is nothing to tell it
	// by.
	WaitSeconds *int64 `json:"wait_seconds,omitempty"`
}

// Queue is a queue that serves a user, as the server shows it: an element of GET /queues. It is one worker that is a
// queue of a batch system, or all workers of a user that have the same tag. CodaLab's own server has no such route.
type Queue struct {
	// Tag is the value for request_queue; empty if the workers have none.
	Tag string `json:"tag"`
	// Default is set if the queue also takes runs that name no queue.
	Default bool `json:"default"`
	// Workers counts the workers.
	Workers int64 `json:"workers"`
	// Sizes are the largest requests that one run can have. None of them fits into another.
	Sizes []NodeSize `json:"sizes"`
	// GPUTypes has the most GPUs of each type that one run can get; empty if the types are not known.
	GPUTypes map[string]int64 `json:"gpu_types,omitempty"`
	// MaxTime and DefaultTime are in seconds; 0 for none.
	MaxTime     int64 `json:"max_time"`
	DefaultTime int64 `json:"default_time"`
	// DefaultCPUImage and DefaultGPUImage are the references for runs that name no image.
	DefaultCPUImage string `json:"default_cpu_image"`
	DefaultGPUImage string `json:"default_gpu_image"`
	// Running counts the runs at work, and Waiting those that the queue has taken and not begun.
	Running int64 `json:"running"`
	Waiting int64 `json:"waiting"`
	// Nodes counts the nodes that work, and IdleNodes those without a job. Both are 0 if they are not known.
	Nodes     int64 `json:"nodes"`
	IdleNodes int64 `json:"idle_nodes"`
	// ExpectedWait is in seconds; nil if it is not known.
	ExpectedWait *int64 `json:"expected_wait"`
	// Serves has the users whose runs the queue takes, as far as the reader may know them.
	Serves QueueUsers `json:"serves"`
	// Closed is the reason for which the queue takes no new runs now; empty while it takes some.
	Closed string `json:"closed,omitempty"`
	// AwaySince is the time of the last check-in of a queue that is away, in Unix seconds; 0 while it is there.
	AwaySince int64 `json:"away_since,omitempty"`
}

// QueueUsers has the users whose runs a queue takes. Users and Groups have only those that the reader may know.
type QueueUsers struct {
	Everybody bool     `json:"everybody"`
	Users     []string `json:"users,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	// PermittedTo is the user who must have all permissions on a run of the group's members; empty if none needs any.
	PermittedTo string `json:"permitted_to,omitempty"`
}
