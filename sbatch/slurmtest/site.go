package slurmtest

import (
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Site is the configuration of a cluster. A Controller never writes to it, so that many can share one.
type Site struct {
	// Slurm is the version of the cluster.
	Slurm      Version
	Nodes      []Node
	Partitions []Partition
	QOS        []QOS
	Users      []User
	// FirstJob is the id of the first job, and of the first one after a loss of the controller's state.
	FirstJob sbatch.JobID
	// MaxArraySize bounds the tasks of an array (slurm.conf(5)); 0 permits none.
	MaxArraySize int
	// MemoryPerCPU, in MiB, is the memory of a job that requests none.
	MemoryPerCPU int64
	// StartDelay is the time between a submission and the pass of the scheduler that can start the job;
	// Epilog is the time for which a job is COMPLETING after its last process has ended.
	StartDelay, Epilog time.Duration
	// KillWait and MinJobAge are as in slurm.conf(5). LimitEvery is the interval at which slurmctld checks
	// time limits, RequeueDelay the time until a requeued job is eligible.
	KillWait, MinJobAge, LimitEvery, RequeueDelay time.Duration
	// NameAfter is the time from a submission until the accounting database has the job's name, EndAfter
	// the time from its end until the database has that.
	NameAfter, EndAfter time.Duration
}

// Node is one machine of a cluster.
type Node struct {
	Name      string
	CPUs      int64
	MemoryMiB int64
	GPUType   string
	GPUs      int
}

// Partition is a set of nodes with a queue of jobs.
type Partition struct {
	Name string
	// Nodes are the names of its nodes.
	Nodes []string
	// State is UP or DOWN; empty means UP.
	State string
	// Default is set for the partition of jobs that name none.
	Default              bool
	MaxTime, DefaultTime time.Duration
}

// QOS is a quality of service.
type QOS struct {
	Name string
	// MaxSubmitJobs bounds a user's jobs in it that have not ended; 0 is no limit.
	MaxSubmitJobs int
}

// User is a user with an association. Only such users can submit jobs.
type User struct {
	UID  int
	Name string
	// The first of each is the default of a job.
	Accounts, QOS, WCKeys []string
}

// NewSite returns the cluster of scripts/slurm-cluster: four nodes, two of them with four GPUs, and the users
// root and researcher. Its times were measured there.
func NewSite() *Site {
	node := func(name, gpu string, gpus int) Node {
		return Node{Name: name, CPUs: 64, MemoryMiB: 256000, GPUType: gpu, GPUs: gpus}
	}
	return &Site{
		Nodes: []Node{
			node("n1", "", 0), node("n2", "", 0), node("n3", "a100", 4), node("n4", "a100", 4),
		},
		Partitions: []Partition{
			{Name: "cpu", Nodes: []string{"n1", "n2"}, Default: true, MaxTime: 7 * 24 * time.Hour, DefaultTime: time.Hour},
			{Name: "gpu", Nodes: []string{"n3", "n4"}, MaxTime: 2 * 24 * time.Hour, DefaultTime: time.Hour},
			{Name: "short", Nodes: []string{"n1", "n2", "n3", "n4"}, MaxTime: 10 * time.Minute, DefaultTime: time.Minute},
		},
		QOS: []QOS{{Name: "normal"}, {Name: "limited", MaxSubmitJobs: 2}},
		Users: []User{
			{UID: 0, Name: "root", Accounts: []string{"lab", "nlp"}, QOS: []string{"normal", "limited"}, WCKeys: []string{"proj1"}},
			{UID: 1001, Name: "researcher", Accounts: []string{"lab", "nlp"}, QOS: []string{"normal", "limited"}, WCKeys: []string{"proj1"}},
		},
		FirstJob: 1, MaxArraySize: 10001, MemoryPerCPU: 500,
		StartDelay: 200 * time.Millisecond, Epilog: 20 * time.Millisecond,
		KillWait: 3 * time.Second, MinJobAge: 300 * time.Second, LimitEvery: 30 * time.Second, RequeueDelay: 121 * time.Second,
		NameAfter: 2 * time.Second, EndAfter: 500 * time.Millisecond,
	}
}

func (s *Site) user(uid int) *User {
	i := slices.IndexFunc(s.Users, func(u User) bool { return u.UID == uid })
	if i < 0 {
		return nil
	}
	return &s.Users[i]
}

func (s *Site) qos(name string) *QOS {
	i := slices.IndexFunc(s.QOS, func(q QOS) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	return &s.QOS[i]
}
