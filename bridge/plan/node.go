package plan

import (
	"slices"
	"strings"
)

// Node returns Slurm's name for the attempt's node; empty while it has none. A worker gets its node's name
// from slurmd. The job's node list is of the job's last start, which may be on another node if an
// administrator has requeued the job.
func (r Row) Node() string {
	switch {
	case r.Begun == nil:
		return r.Job.Nodes
	case !isNodeName(r.Begun.Node) && isNodeName(r.Job.Nodes):
		return r.Job.Nodes
	}
	return r.Begun.Node
}

// isNodeName reports whether a text can be one node's name in a list for sbatch's --exclude. Brackets and
// commas have a meaning in such lists, and a slash makes the text a file's name.
func isNodeName(name string) bool {
	odd := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	const longest = 255 // as for a host
	return name != "" && len(name) <= longest && !strings.ContainsFunc(name, odd)
}

// joinNodes makes a list for --exclude: sorted, without duplicates, and without names that cannot be in it.
func joinNodes(names ...string) string {
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !isNodeName(name) })
	return strings.Join(names, ",")
}
