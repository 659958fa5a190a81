// Package slurmcluster returns the paths of this machine's Slurm clusters, which
// scripts/slurm-cluster starts. Like the script, tests, benchmarks and the demo use the
// cluster that the environment variable SLURM names.
package slurmcluster

import (
	"os"
	"path/filepath"
	"strings"
)

// Variable is the environment variable that chooses a cluster: empty, or the name of a Debian.
const Variable = "SLURM"

// Second is the environment variable that chooses the second cluster of a Slurm, for tests that would disturb others:
// it is not empty.
const Second = "CLUSTER_SECOND"

// Base is the directory of all clusters, which their nodes see too.
const Base = "/var/tmp/cl-slurm"

// Cluster is a cluster of scripts/slurm-cluster, which may be down.
type Cluster struct {
	// Bin is the directory of Slurm's commands.
	Bin string
	// Conf is the path of slurm.conf.
	Conf string
	// Bridge is the network interface of the nodes' network on this host. The network
	// namespace of node n1 is named Bridge-n1.
	Bridge string
}

// Chosen returns the cluster of the installed Slurm, or that of the Debian that SLURM names; and the second cluster
// of that Slurm if CLUSTER_SECOND is set.
func Chosen() Cluster {
	debian := os.Getenv(Variable)
	bin, dir, bridge := "/usr/bin", "cluster", "clslurm"
	if debian != "" {
		bin, dir, bridge = filepath.Join(Base, "slurm", debian, "bin"), "cluster-"+debian, "cl"+debian
	}
	if os.Getenv(Second) != "" {
		dir, bridge = dir+"-second", bridge+"2"
	}
	return Cluster{Bin: bin, Conf: filepath.Join(Base, dir, "etc/slurm.conf"), Bridge: bridge}
}

// Program returns the path of a command of Slurm, and any other name unchanged.
func (c Cluster) Program(name string) string {
	path := filepath.Join(c.Bin, name)
	if _, err := os.Stat(path); err != nil {
		return name
	}
	return path
}

// Env returns an environment that makes a program a client of the cluster. In its PATH, the
// given directories come first.
func (c Cluster) Env(first ...string) []string {
	path := append(first, c.Bin, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
	return []string{"PATH=" + strings.Join(path, ":"), "SLURM_CONF=" + c.Conf}
}
