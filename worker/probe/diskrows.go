package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/disktrial"
)

// CheckDisk judges what the disk of the shared directory does with links, renames, locks and mounts, on one host.
func CheckDisk(dir string, f disktrial.Features) []Check {
	return []Check{checkMount(dir, f), checkLinks(dir, f), checkRename(dir, f), checkCopies(dir, f), checkLocks(dir, f), checkCalls(dir, f)}
}

// describe returns the type of a disk, with the options of its mount.
func describe(f disktrial.Features) string {
	said := f.Type
	if said == "" {
		said = "a disk of unknown type"
	}
	if len(f.Options) > 0 {
		said += " (" + strings.Join(f.Options, ",") + ")"
	}
	return said
}

// checkMount judges how the disk is mounted (nfs(5)).
func checkMount(dir string, f disktrial.Features) Check {
	const name = "mount"
	said := fmt.Sprintf("%s is on %s", dir, describe(f))
	_, soft := f.Option("soft")
	if _, softer := f.Option("softerr"); soft || softer {
		return Fault(Warning, name, said, "while its server is away, writes of commands fail and are lost", "mount it hard")
	}
	c := Passed(name, "%s", said)
	if slices.Contains([]string{"lustre", "gpfs", "beegfs"}, f.Type) {
		return c.Meaning("many sites purge such disks by policies that no host shows (robinhood, ILM): ask the administrator whether this directory is exempt")
	}
	return c
}

func checkLinks(dir string, f disktrial.Features) Check {
	const name = "links"
	switch {
	case f.HardLinks != "" && strings.HasPrefix(f.HardLinks, "not from"):
		return Fault(Warning, name, fmt.Sprintf("%s has hard links, but %s", dir, f.HardLinks), "files are copied where they would be linked, which takes time and room", "nothing has to be done; a disk that has them is quicker")
	case f.HardLinks != "":
		return Fault(Failed, name, fmt.Sprintf("%s has no hard links (%s)", dir, f.HardLinks), "no attempt of a bundle can be begun there", "name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS")
	case f.Symlinks != "":
		return Fault(Warning, name, fmt.Sprintf("%s has no symbolic links (%s)", dir, f.Symlinks), "inputs with them cannot be staged, and commands that make them fail", "name a directory on another disk")
	}
	return Passed(name, "%s has symbolic links, and hard ones from one directory to another", dir)
}

func checkRename(dir string, f disktrial.Features) Check {
	const name = "rename"
	if f.Rename != "" {
		return Fault(Failed, name, fmt.Sprintf("a file of %s was replaced by rename, and %s", dir, f.Rename), "records of runs seem to be lost for a moment, and runs seem to have failed", "name a directory on a disk with atomic link and rename, such as NFS, Lustre or GPFS")
	}
	return Passed(name, "files of %s are replaced at once by rename, also while others read them", dir)
}

func checkCopies(dir string, f disktrial.Features) Check {
	const name = "reflinks"
	if f.Clone != "" {
		return Passed(name, "%s has none (%s)", dir, f.Clone).Meaning("copies of working directories and inputs take their time and room")
	}
	return Passed(name, "%s has them", dir).Meaning("copies of working directories and inputs share their blocks")
}

func checkLocks(dir string, f disktrial.Features) Check {
	const name = "locks"
	var lacks []string
	for _, lock := range []struct{ name, lack string }{{"flock", f.Flock}, {"fcntl", f.RangeLock}} {
		if lock.lack != "" {
			lacks = append(lacks, fmt.Sprintf("%s: %s", lock.name, lock.lack))
		}
	}
	if len(lacks) == 0 {
		return Passed(name, "flock and fcntl work on %s, between programs of one host", dir)
	}
	return Fault(Warning, name, fmt.Sprintf("%s has no working locks (%s)", dir, strings.Join(lacks, "; ")),
		"the bridge needs none; commands that lock files of their working directory fail, such as SQLite, HDF5 and pip",
		`mount Lustre with flock, and NFS 3 with its lock manager (rpc.statd); or set workdir = "local" for the queue`)
}

func checkCalls(dir string, f disktrial.Features) Check {
	const name = "attributes"
	var lacks []string
	if f.Attribute != "" {
		lacks = append(lacks, fmt.Sprintf("extended attributes of users (%s)", f.Attribute))
	}
	if f.Unnamed != "" {
		lacks = append(lacks, fmt.Sprintf("files without a name, O_TMPFILE (%s)", f.Unnamed))
	}
	if len(lacks) > 0 {
		return Passed(name, "%s has no %s", dir, strings.Join(lacks, ", and no ")).Meaning("the bridge needs none; most programs do without")
	}
	return Passed(name, "%s has extended attributes of users, and files without a name (O_TMPFILE)", dir)
}

// checkScratchDisk judges the disk of a node's scratch.
func checkScratchDisk(dir string, f disktrial.Features) Check {
	const name = "scratch"
	switch said := fmt.Sprintf("%s is on %s", dir, describe(f)); {
	case f.Network != "":
		return Fault(Warning, name, said+", which other hosts may share", "roots and $TMPDIR of all runs are on the network, which is slow, and overlays may fail there", "name a directory of the node's own disk as scratch")
	case f.Symlinks != "" || f.HardLinks != "" || f.Rename != "":
		return Fault(Warning, name, fmt.Sprintf("%s; %s", said, strings.Trim(f.HardLinks+" "+f.Symlinks+" "+f.Rename, " ")), "commands that link or rename files in $TMPDIR fail", "name a directory on ext4, xfs or tmpfs as scratch")
	default:
		return Passed(name, "%s", said)
	}
}

// Locks tells whether locks that the login node holds exclude the node. A text is empty if they do, "shared" if the node
// gets the lock, too, and else the reason why it cannot ask.
type Locks struct {
	Flock     string `json:"flock,omitempty"`
	RangeLock string `json:"range_lock,omitempty"`
}

// shared is the text for a lock that two hosts have.
const shared = "shared"

// checks judges locks between hosts. A failure within one host has a check of its own.
func (l *Locks) checks(dir string, f disktrial.Features) []Check {
	if l == nil || f.Flock != "" || f.RangeLock != "" {
		return nil
	}
	const name = "locks-between-hosts"
	if l.Flock == "" && l.RangeLock == "" {
		return []Check{Passed(name, "flock and fcntl on %s exclude programs of other hosts", dir)}
	}
	var local []string
	for _, lock := range []struct{ name, said string }{{"flock", l.Flock}, {"fcntl", l.RangeLock}} {
		switch lock.said {
		case "":
		case shared:
			local = append(local, lock.name+" locks only within a host")
		default:
			local = append(local, lock.name+": "+lock.said)
		}
	}
	return []Check{Passed(name, "%s: %s", dir, strings.Join(local, "; ")).
		Meaning("the bridge needs none; programs of several runs must not write to one database file there")}
}
