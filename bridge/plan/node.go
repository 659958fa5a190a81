package plan

import (
	"slices"
	"strings"
)

// Node is the node of the attempt, by the name that Slurm has for it; empty while it has none. A worker
// has its node's name from slurmd. Slurm's own node list is that of the job's last start, which is another
// one if an administrator has requeued the job.
func (r Row) Node() string {
	switch {
	case r.Begun == nil:
		return r.Job.Nodes
	case !isNodeName(r.Begun.Node) && isNodeName(r.Job.Nodes):
		return r.Job.Nodes
	}
	return r.Begun.Node
}

// isNodeName reports whether a text can be the name of one node among others in sbatch's --exclude.
// Brackets and commas make lists there, and a slash the name of a file.
func isNodeName(name string) bool {
	odd := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	const longest = 255 // as for a host
	return name != "" && len(name) <= longest && !strings.ContainsFunc(name, odd)
}

// joinNodes makes a list for --exclude of the names that can be in one, each once, in order.
func joinNodes(names ...string) string {
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !isNodeName(name) })
	return strings.Join(names, ",")
}
