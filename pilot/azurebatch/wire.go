package azurebatch

import "time"

// Task is a new task (Azure Batch REST: Tasks_CreateTask).
type Task struct {
	ID                string            `json:"id"`
	CommandLine       string            `json:"commandLine"`
	ContainerSettings ContainerSettings `json:"containerSettings"`
	Environment       []NameValue       `json:"environmentSettings,omitempty"`
	OutputFiles       []OutputFile      `json:"outputFiles,omitempty"`
	Constraints       Constraints       `json:"constraints"`
	RequiredSlots     int64             `json:"requiredSlots"`
}

// ContainerSettings are the container of a task. RunOptions are further options for "docker create".
type ContainerSettings struct {
	ImageName  string `json:"imageName"`
	RunOptions string `json:"containerRunOptions,omitempty"`
}

// NameValue is a variable, or a detail of an error.
type NameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// OutputFile is a file that Batch uploads from the node.
type OutputFile struct {
	FilePattern string        `json:"filePattern"`
	Destination Destination   `json:"destination"`
	Options     UploadOptions `json:"uploadOptions"`
}

// Destination is the place of an uploaded file: a blob at a path in a container.
type Destination struct {
	Container struct {
		Path         string `json:"path"`
		ContainerURL string `json:"containerUrl"`
	} `json:"container"`
}

// UploadOptions have the condition of an upload: the task's end, its success or its failure.
type UploadOptions struct {
	Condition string `json:"uploadCondition"`
}

// Constraints bound a task. RetentionTime is the time for which the node keeps its files, in the form of ISO 8601.
type Constraints struct {
	RetentionTime     string `json:"retentionTime"`
	MaxTaskRetryCount int    `json:"maxTaskRetryCount"`
}

// taskFields are the fields of TaskInfo.
const taskFields = "id,state,stateTransitionTime,creationTime,executionInfo,nodeInfo"

// The states of a task. A task that is preparing has a node, on which the job's own preparation still runs.
const (
	taskActive    = "active"
	taskPreparing = "preparing"
	taskRunning   = "running"
	taskCompleted = "completed"
)

// TaskInfo is a task as the service shows it.
type TaskInfo struct {
	ID              string     `json:"id"`
	State           string     `json:"state"`
	StateTransition time.Time  `json:"stateTransitionTime"`
	Created         time.Time  `json:"creationTime"`
	Execution       *Execution `json:"executionInfo"`
	Node            *struct {
		PoolID string `json:"poolId"`
		NodeID string `json:"nodeId"`
	} `json:"nodeInfo"`
}

// Execution is the course of a task. Start is that of the last time, if Batch has begun it again. RequeueCount counts only
// the times that a person was the cause, who removed its node.
type Execution struct {
	Start        time.Time `json:"startTime"`
	End          time.Time `json:"endTime"`
	ExitCode     *int      `json:"exitCode"`
	Failure      *Failure  `json:"failureInfo"`
	RequeueCount int       `json:"requeueCount"`
	Container    *struct {
		State string `json:"state"`
		Error string `json:"error"`
	} `json:"containerInfo"`
}

// Failure is the reason for which a task failed.
type Failure struct {
	Category string      `json:"category"`
	Code     string      `json:"code"`
	Message  string      `json:"message"`
	Details  []NameValue `json:"details"`
}

// Job is a job. Its tasks run only while its state is active.
type Job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	PoolInfo struct {
		PoolID string `json:"poolId"`
	} `json:"poolInfo"`
}

// Pool is a pool of nodes.
type Pool struct {
	ID               string     `json:"id"`
	State            string     `json:"state"`
	AllocationState  string     `json:"allocationState"`
	VMSize           string     `json:"vmSize"`
	ResizeErrors     []Problem  `json:"resizeErrors"`
	CurrentDedicated int        `json:"currentDedicatedNodes"`
	CurrentLow       int        `json:"currentLowPriorityNodes"`
	TargetDedicated  int        `json:"targetDedicatedNodes"`
	TargetLow        int        `json:"targetLowPriorityNodes"`
	AutoScale        bool       `json:"enableAutoScale"`
	AutoScaleRun     *ScaleRun  `json:"autoScaleRun"`
	SlotsPerNode     int64      `json:"taskSlotsPerNode"`
	Machine          *VMachines `json:"virtualMachineConfiguration"`
}

// VMachines is the configuration of a pool's nodes.
type VMachines struct {
	Container *struct {
		Type string `json:"type"`
	} `json:"containerConfiguration"`
}

// ScaleRun is the last evaluation of a pool's formula.
type ScaleRun struct {
	Error *Problem `json:"error"`
}

// Problem is an error of a pool.
type Problem struct {
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Values  []NameValue `json:"values"`
}

// Node is a node of a pool.
type Node struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Errors []struct {
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Details []NameValue `json:"errorDetails"`
	} `json:"errors"`
	StartTask *struct {
		ExitCode *int     `json:"exitCode"`
		Failure  *Failure `json:"failureInfo"`
	} `json:"startTaskInfo"`
}

// NodeCounts are numbers of nodes by state. Those that may take a task are Idle and Running.
type NodeCounts struct {
	Total           int `json:"total"`
	Idle            int `json:"idle"`
	Running         int `json:"running"`
	Preempted       int `json:"preempted"`
	Unusable        int `json:"unusable"`
	Offline         int `json:"offline"`
	StartTaskFailed int `json:"startTaskFailed"`
	Unknown         int `json:"unknown"`
	LeavingPool     int `json:"leavingPool"`
	Deallocated     int `json:"deallocated"`
	Deallocating    int `json:"deallocating"`
}

func (n NodeCounts) plus(m NodeCounts) NodeCounts {
	return NodeCounts{
		Total: n.Total + m.Total, Idle: n.Idle + m.Idle, Running: n.Running + m.Running, Preempted: n.Preempted + m.Preempted, Unusable: n.Unusable + m.Unusable,
		Offline: n.Offline + m.Offline, StartTaskFailed: n.StartTaskFailed + m.StartTaskFailed, Unknown: n.Unknown + m.Unknown,
		LeavingPool: n.LeavingPool + m.LeavingPool, Deallocated: n.Deallocated + m.Deallocated, Deallocating: n.Deallocating + m.Deallocating,
	}
}
