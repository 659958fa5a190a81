package sbatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Partition is a partition of the cluster, as sinfo shows it.
type Partition struct {
	Name string
	// Default is set for the partition of jobs that name none.
	Default bool
	// State is usually "up". A "down" partition accepts jobs and starts none. A "drain" partition accepts
	// none, but starts those that it has. An "inactive" one does neither.
	State string
	// MaxTime is the longest time limit of a job; 0 means no bound.
	MaxTime time.Duration
	// DefaultTime is the time limit of a job that requests none. If it is 0, such a job gets MaxTime.
	DefaultTime time.Duration
	// Nodes counts its nodes, Ready those that are idle or allocated. The others are down or drained.
	Nodes int
	Ready int
	// Idle counts the nodes that are ready and have no job.
	Idle int
	// Most has, for each resource, the largest amount of any one node of the partition. The amounts may
	// belong to different nodes.
	Most NodeResources
	// All has the sums over all its nodes.
	All NodeResources
	// Sizes are the sizes of its nodes.
	Sizes NodeSizes
}

// Up reports whether the partition accepts jobs and starts them.
func (p Partition) Up() bool { return p.State == "up" }

// NodeResources has the resources that one node, or several nodes together, offer to jobs.
type NodeResources struct {
	CPUs int64
	// Memory is in bytes.
	Memory int64
	// GPUs counts the generic resources gpu of all types. GPUTypes counts those of each type; a GPU without
	// a type counts in GPUs alone.
	GPUs     int64
	GPUTypes map[string]int64
}

// NodeSizes has the sizes of single nodes. Each is the size of some node, and no size fits within another.
type NodeSizes []NodeResources

// With returns the sizes together with those of further nodes. It changes none of them.
func (s NodeSizes) With(more ...NodeResources) NodeSizes {
	s = slices.Clone(s)
	for _, size := range more {
		if !s.Fit(size) {
			s = append(slices.DeleteFunc(s, size.Fits), size)
		}
	}
	return s
}

// Fit reports whether a request fits one of the nodes.
func (s NodeSizes) Fit(request NodeResources) bool {
	return slices.ContainsFunc(s, func(size NodeResources) bool { return size.Fits(request) })
}

// Fits reports whether a request fits a node of this size.
func (r NodeResources) Fits(request NodeResources) bool {
	for kind, n := range request.GPUTypes {
		if n > r.GPUTypes[kind] {
			return false
		}
	}
	return request.CPUs <= r.CPUs && request.Memory <= r.Memory && request.GPUs <= r.GPUs
}

// sinfoFields are the fields that parsePartitions reads, for sinfo(1)'s --format.
const sinfoFields = "%R|%P|%a|%l|%L|%F|%B|%c|%m|%G"

// Partitions returns all partitions in the order of slurm.conf, including hidden ones and those that this
// user may not use. It asks the controller once for its partitions and once for its nodes.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	// Without --exact a line may describe nodes that differ in CPUs and memory, and shows the smallest
	// amounts.
	out, err := c.query(ctx, "list partitions",
		c.onCluster("sinfo", "--all", "--local", "--exact", "--noheader", "--format="+sinfoFields)...)
	if err != nil {
		return nil, err
	}
	partitions, err := parsePartitions(out)
	if err != nil {
		return nil, &Error{Op: "list partitions", Message: err.Error(), Err: err}
	}
	return partitions, nil
}

// parsePartitions reads sinfo's answer. Each line describes nodes of a partition that are alike.
func parsePartitions(out string) ([]Partition, error) {
	lines, err := splitLines(out, 10)
	if err != nil {
		return nil, err
	}
	var all []Partition
	for _, fields := range lines {
		p, err := parsePartition(fields)
		if err != nil {
			return nil, fmt.Errorf("cannot read %q: %w", shorten(strings.Join(fields, "|")), err)
		}
		i := slices.IndexFunc(all, func(known Partition) bool { return known.Name == p.Name })
		if i < 0 {
			all = append(all, p)
			continue
		}
		all[i].Nodes += p.Nodes
		all[i].Ready += p.Ready
		all[i].Idle += p.Idle
		all[i].Most = all[i].Most.Max(p.Most)
		all[i].All.Add(p.All, 1)
		all[i].Sizes = all[i].Sizes.With(p.Sizes...)
	}
	return all, nil
}

// parsePartition reads a line for nodes that are alike.
func parsePartition(f []string) (Partition, error) {
	p := Partition{Name: f[0], Default: f[1] == f[0]+"*", State: f[2]}
	if p.Name == "" || p.State == "" {
		return Partition{}, errors.New("no name or no state")
	}
	var err error
	if p.MaxTime, err = partitionLimit(f[3]); err != nil {
		return Partition{}, err
	}
	if p.DefaultTime, err = partitionLimit(f[4]); err != nil {
		return Partition{}, err
	}
	var nodes [4]int64 // allocated, idle, other, all
	counts := strings.Split(f[5], "/")
	if len(counts) != len(nodes) {
		return Partition{}, fmt.Errorf("%q are no counts of nodes", f[5])
	}
	for i, n := range counts {
		if nodes[i], err = parseCount(n); err != nil {
			return Partition{}, err
		}
	}
	p.Nodes, p.Ready, p.Idle = int(nodes[3]), int(nodes[0]+nodes[1]), int(nodes[1])
	p.Most, err = parseResources(f[6], f[7], f[8], f[9])
	p.All.Add(p.Most, nodes[3])
	if p.Nodes > 0 {
		p.Sizes = NodeSizes{p.Most}
	}
	return p, err
}

func parseResources(maxCPUs, cpus, mebibytes, gres string) (NodeResources, error) {
	var r NodeResources
	var err error
	if r.CPUs, err = parseCount(cpus); err != nil {
		return r, err
	}
	if maxCPUs != "UNLIMITED" { // slurm.conf(5): MaxCPUsPerNode
		bound, err := parseCount(maxCPUs)
		if err != nil {
			return r, err
		}
		r.CPUs = min(r.CPUs, bound)
	}
	mib, err := parseCount(mebibytes)
	if err != nil {
		return r, err
	}
	r.Memory = mib << 20
	return r, r.addGPUs(gres)
}

// gresSuffix matches additions to a generic resource: its sockets, and no_consume. It matches all of "(null)",
// which means no resource.
var gresSuffix = regexp.MustCompile(`\([^)]*\)|:no_consume`)

// addGPUs reads a node's generic resources, such as
// "gpu:a100:4(S:0,1),gpu:2,lustre:no_consume:4G" (slurm.conf(5): Gres).
func (r *NodeResources) addGPUs(gres string) error {
	for resource := range strings.SplitSeq(gresSuffix.ReplaceAllString(gres, ""), ",") {
		parts := strings.Split(resource, ":")
		if parts[0] != "gpu" {
			continue
		}
		kind, number := "", "1"
		switch {
		case len(parts) > 3:
			return fmt.Errorf("generic resource %q is not name:type:count", resource)
		case len(parts) == 3:
			kind, number = parts[1], parts[2]
		case len(parts) == 2 && startsWithDigit(parts[1]):
			number = parts[1]
		case len(parts) == 2:
			kind = parts[1]
		}
		n, err := parseCount(number)
		if err != nil {
			return fmt.Errorf("generic resource %q: %w", resource, err)
		}
		r.GPUs += n
		if kind != "" {
			if r.GPUTypes == nil {
				r.GPUTypes = map[string]int64{}
			}
			r.GPUTypes[kind] += n
		}
	}
	return nil
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// Max returns, for each resource, the larger amount of r and other. It changes neither.
func (r NodeResources) Max(other NodeResources) NodeResources {
	r.CPUs, r.Memory, r.GPUs = max(r.CPUs, other.CPUs), max(r.Memory, other.Memory), max(r.GPUs, other.GPUs)
	r.GPUTypes = maps.Clone(r.GPUTypes)
	for kind, n := range other.GPUTypes {
		if r.GPUTypes == nil {
			r.GPUTypes = map[string]int64{}
		}
		r.GPUTypes[kind] = max(r.GPUTypes[kind], n)
	}
	return r
}

// Add adds the resources of n equal nodes.
func (r *NodeResources) Add(node NodeResources, n int64) {
	r.CPUs, r.Memory, r.GPUs = r.CPUs+n*node.CPUs, r.Memory+n*node.Memory, r.GPUs+n*node.GPUs
	for kind, gpus := range node.GPUTypes {
		if r.GPUTypes == nil {
			r.GPUTypes = map[string]int64{}
		}
		r.GPUTypes[kind] += n * gpus
	}
}

// count matches a number as Slurm prints it: 64, 2K, 1.50K. Slurm shortens some numbers from 1024 on (Slurm
// src/common/slurm_protocol_api.c: convert_num_unit).
var count = regexp.MustCompile(`^(\d{1,12})(?:(\.\d{1,6})?([KMG]))?$`)

func parseCount(s string) (int64, error) {
	m := count.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is no count", shorten(s))
	}
	if m[3] == "" {
		return strconv.ParseInt(m[1], 10, 64) //nolint:wrapcheck // it is a number
	}
	n, err := strconv.ParseFloat(m[1]+m[2], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no count", shorten(s))
	}
	unit := map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[m[3]]
	return int64(min(n*unit, 1<<40)), nil
}

// partitionLimit reads a time limit of a partition; 0 means none.
func partitionLimit(s string) (time.Duration, error) {
	if s == "n/a" {
		return 0, nil
	}
	limit, err := ParseLimit(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no time limit", shorten(s))
	}
	return limit, nil
}
