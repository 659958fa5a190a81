package slurmtest

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

var sinfoOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"all", 'a', false},
	{"Node", 'N', false},
	{"format", 'o', true},
	{"noheader", 'h', false},
	{"nodes", 'n', true},
	{"partition", 'p', true},

	{"Format", 'O', true},
	{"json", 0, false},
	{"long", 'l', false},
	{"states", 't', true},
	{"summarize", 's', false},
}

// sinfoFields are the fields of sinfo(1)'s --format that are modelled, with
// their headings.
var sinfoFields = map[byte]string{ //nolint:gochecknoglobals // a table, never written
	'P': "PARTITION", 'R': "PARTITION", 'a': "AVAIL", 'l': "TIMELIMIT", 'D': "NODES", 'T': "STATE", 't': "STATE", 'N': "NODELIST",
	'c': "CPUS", 'm': "MEMORY", 'G': "GRES", 'f': "AVAIL_FEATURES",
}

// group is one line of sinfo's: nodes of a partition that are alike.
type group struct {
	partition *Partition
	nodes     []*node
}

func (k *Cluster) sinfo(c call) (string, error) {
	all, each, bare, format := false, false, false, "%9P %.5a %.10l %.6D %.6t %N"
	var nodes, partitions []string
	rest, err := scan("sinfo", sinfoOptions, c.Args, func(option, value string) error {
		switch option {
		case "all":
			all = true
		case "Node":
			each = true
		case "format":
			format = value
		case "noheader":
			bare = true
		case "nodes":
			nodes = strings.Split(value, ",")
		case "partition":
			partitions = strings.Split(value, ",")
		default:
			return &UnmodelledError{What: "sinfo --" + option}
		}
		return nil
	})
	if err == nil && len(rest) > 0 {
		err = &UnmodelledError{What: "sinfo " + rest[0]}
	}
	if err != nil {
		return "", err
	}
	fields, err := parseFormat("sinfo", format, sinfoFields)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if !bare {
		for _, f := range fields {
			f.print(&out, sinfoFields[f.letter])
		}
		out.WriteString("\n")
	}
	k.Do(func(_ time.Time, m *Controller) {
		if m.stopped {
			err = fail(1, "slurm_load_partitions: "+away)
			return
		}
		for _, g := range m.groups(each) {
			g.nodes = slices.DeleteFunc(g.nodes, func(n *node) bool { return nodes != nil && !slices.Contains(nodes, n.Name) })
			if len(g.nodes) == 0 || !all && g.partition.Hidden || partitions != nil && !slices.Contains(partitions, g.partition.Name) {
				continue
			}
			for _, f := range fields {
				f.print(&out, g.field(f.letter))
			}
			out.WriteString("\n")
		}
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// groups are the nodes of each partition, by state or each alone.
func (c *Controller) groups(each bool) []group {
	var all []group
	for i := range c.partitions {
		p := &c.partitions[i]
		first := len(all)
		for _, name := range p.Nodes {
			n := c.node(name)
			at := slices.IndexFunc(all[first:], func(g group) bool { return n != nil && g.nodes[0].state() == n.state() })
			switch {
			case n == nil:
			case at < 0 || each:
				all = append(all, group{p, []*node{n}})
			default:
				all[first+at].nodes = append(all[first+at].nodes, n)
			}
		}
	}
	return all
}

// state is a node's, as sinfo prints it.
func (n *node) state() string {
	busy := n.freeCPUs < n.CPUs
	switch {
	case n.down:
		return "down"
	case n.drained && busy:
		return "draining"
	case n.drained:
		return "drained"
	case n.freeCPUs == 0:
		return "allocated"
	case busy:
		return "mixed"
	}
	return "idle"
}

func (g group) field(letter byte) string {
	n := g.nodes[0]
	switch letter {
	case 'P':
		if g.partition.Default {
			return g.partition.Name + "*"
		}
		return g.partition.Name
	case 'R':
		return g.partition.Name
	case 'a':
		if s := strings.ToLower(g.partition.State); s != "" {
			return s
		}
		return "up"
	case 'l':
		return span(g.partition.MaxTime)
	case 'D':
		return strconv.Itoa(len(g.nodes))
	case 'T':
		return n.state()
	case 't':
		short := map[string]string{"allocated": "alloc", "mixed": "mix", "draining": "drng", "drained": "drain"}
		if s := short[n.state()]; s != "" {
			return s
		}
		return n.state()
	case 'N':
		names := make([]string, 0, len(g.nodes))
		for _, n := range g.nodes {
			names = append(names, n.Name)
		}
		return nodeList(names)
	case 'c':
		return strconv.FormatInt(n.CPUs, 10)
	case 'm':
		return strconv.FormatInt(n.MemoryMiB, 10)
	case 'G':
		if n.GPUs == 0 {
			return "(null)"
		}
		return "gpu:" + n.GPUType + ":" + strconv.Itoa(n.GPUs)
	}
	return strings.Join(n.Features, ",")
}
