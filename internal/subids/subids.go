//go:build linux

package subids

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// size is the number of ids of a container. Debian's nobody is 65534.
const size = 1 << 16

// Map is a map of ids into the user namespaces of this user.
type Map struct {
	uids, gids kind
}

// kind is the map of user ids, or that of group ids.
type kind struct {
	program string // newuidmap or newgidmap
	extents []extent
}

// extent maps count ids from inside to those from outside.
type extent struct{ inside, outside, count uint32 }

// Find returns the map of the calling user. An error is a sentence with the reason why a container has
// only one id here. Find starts no program, except at a site with subordinate ids in another database
// than /etc/subuid and /etc/subgid.
func Find() (*Map, error) {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && set == 1 && os.Geteuid() != 0 {
		return nil, errors.New("this process may not gain privileges (no_new_privs), which newuidmap needs")
	}
	m := &Map{}
	for _, k := range []struct {
		kind          *kind
		program, file string
		own           int
		flags         []string // of getsubids
	}{
		{&m.uids, "newuidmap", "/etc/subuid", os.Getuid(), nil},
		{&m.gids, "newgidmap", "/etc/subgid", os.Getgid(), []string{"-g"}},
	} {
		ranges, err := findRanges(k.file, k.flags)
		if err != nil {
			return nil, err
		}
		if k.kind.extents, err = arrange(uint32(k.own), ranges); err != nil { //nolint:gosec // an id
			return nil, fmt.Errorf("%s: %w", k.file, err)
		}
		if k.kind.program, err = findProgram(k.program); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// String lists the subordinate user ids.
func (m *Map) String() string {
	var ranges []string
	for _, e := range m.uids.extents[1:] {
		ranges = append(ranges, fmt.Sprintf("%d-%d", e.outside, e.outside+e.count-1))
	}
	return strings.Join(ranges, " ")
}

// Program returns the path of newuidmap.
func (m *Map) Program() string { return m.uids.program }

// has reports whether a user id is one of the subordinate ids.
func (m *Map) has(uid uint32) bool {
	return slices.ContainsFunc(m.uids.extents[1:], func(e extent) bool { return uid-e.outside < e.count })
}

// arrange maps 0 to the user's own id, and the other ids of a container to the ranges, in their order.
func arrange(own uint32, ranges []extent) ([]extent, error) {
	extents := []extent{{outside: own, count: 1}}
	next := uint32(1)
	for _, r := range ranges {
		if slices.ContainsFunc(extents, func(e extent) bool { return r.outside < e.outside+e.count && e.outside < r.outside+r.count }) {
			continue // the kernel refuses an id that is mapped twice
		}
		r.inside, r.count = next, min(r.count, size-next)
		if r.count > 0 {
			extents = append(extents, r)
			next += r.count
		}
	}
	switch next {
	case size:
		return extents, nil
	case 1:
		return nil, fmt.Errorf("it gives this user (%s) no range of ids", userName())
	}
	return nil, fmt.Errorf("it gives this user (%s) %d ids, and a container needs %d", userName(), next-1, size-1)
}

// findRanges returns the user's ranges in a database of subordinate ids.
func findRanges(file string, flags []string) ([]extent, error) {
	if service := otherDatabase(); service != "" {
		return askDatabase(service, flags)
	}
	text, err := smallfile.Read(file)
	if err != nil {
		return nil, fmt.Errorf("no ids can be read from %s: %w", file, err)
	}
	var ranges []extent
	names := []string{strconv.Itoa(os.Getuid())}
	if strings.TrimSpace(string(text)) != "" {
		names = append(names, userName())
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) == 3 && slices.Contains(names, fields[0]) {
			ranges = appendRange(ranges, fields[1], fields[2])
		}
	}
	return ranges, nil
}

// appendRange appends a range that is written as its first id and its number of ids. Like newuidmap, it
// ignores others.
func appendRange(ranges []extent, first, count string) []extent {
	f, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return ranges
	}
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || n == 0 || f+n > 1<<32-1 {
		return ranges
	}
	return append(ranges, extent{outside: uint32(f), count: uint32(n)})
}

// otherDatabase returns the service that has the site's subordinate ids, such as sss, or "" for the files
// (nsswitch.conf(5): subid).
func otherDatabase() string {
	text, err := smallfile.Read("/etc/nsswitch.conf")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if services, ok := strings.CutPrefix(strings.TrimSpace(line), "subid:"); ok {
			if service := strings.TrimSpace(services); service != "files" {
				return service
			}
		}
	}
	return ""
}

func askDatabase(service string, flags []string) ([]extent, error) {
	program, ok := find("getsubids")
	if !ok {
		return nil, fmt.Errorf("/etc/nsswitch.conf has the subordinate ids in %s, and this node lacks the program getsubids (shadow-utils) to ask it", service)
	}
	output, err := call(program, append(flags, userName())...)
	if err != nil {
		return nil, fmt.Errorf("%s gives this user (%s) no range of ids: %w", service, userName(), err)
	}
	var ranges []extent
	for line := range strings.Lines(output) { // "0: NAME FIRST COUNT"
		if fields := strings.Fields(line); len(fields) == 4 {
			ranges = appendRange(ranges, fields[2], fields[3])
		}
	}
	return ranges, nil
}

// userName returns the name of the calling user. Go itself finds only the users in /etc/passwd.
func userName() string {
	id := strconv.Itoa(os.Getuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	if getent, ok := find("getent"); ok {
		if output, err := call(getent, "passwd", id); err == nil {
			name, _, _ := strings.Cut(output, ":")
			return name
		}
	}
	return id
}

// findProgram returns the path of newuidmap or newgidmap if it can have the privilege to map ids.
func findProgram(name string) (string, error) {
	path, ok := find(name)
	if !ok {
		return "", fmt.Errorf("this node lacks the program %s: its package uidmap (on RHEL shadow-utils) has to be installed", name)
	}
	if os.Geteuid() == 0 { // a program of root needs no privilege of its own (capabilities(7))
		return path, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	capabilities, err := unix.Getxattr(path, "security.capability", nil)
	if info.Mode()&os.ModeSetuid == 0 && (err != nil || capabilities == 0) {
		return "", fmt.Errorf("%s is neither setuid nor has it capabilities: its package has to be installed again", path)
	}
	var disk unix.Statfs_t
	if unix.Statfs(path, &disk) == nil && disk.Flags&unix.ST_NOSUID != 0 {
		return "", fmt.Errorf("%s has no privileges, because its file system is mounted nosuid", path)
	}
	return path, nil
}

// Prepare makes a process start in a user namespace for the map: without any ids, which Apply adds, and
// with all capabilities there. A process without a user id would lose them when it executes its program,
// so they are ambient (capabilities(7)).
func (m *Map) Prepare(attributes *syscall.SysProcAttr) {
	attributes.Cloneflags |= syscall.CLONE_NEWUSER
	attributes.UidMappings, attributes.GidMappings = nil, nil
	for n := range uintptr(64) {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0); err != nil {
			break // this kernel has no more
		}
		attributes.AmbientCaps = append(attributes.AmbientCaps, n)
	}
}

// Apply maps the ids into the namespace of a process that has been started with Prepare. An error is a
// sentence, and the namespace cannot be used then.
func (m *Map) Apply(pid int) error {
	var group errgroup.Group
	for _, k := range []kind{m.uids, m.gids} {
		group.Go(func() error { return k.apply(pid) })
	}
	return group.Wait()
}

func (k kind) apply(pid int) error {
	args := []string{strconv.Itoa(pid)}
	for _, e := range k.extents {
		for _, n := range []uint32{e.inside, e.outside, e.count} {
			args = append(args, strconv.FormatUint(uint64(n), 10))
		}
	}
	_, err := call(k.program, args...)
	return err
}

// Settle makes the programs that this thread starts have the usual capabilities of root's, after Apply.
func Settle() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err == nil {
		err = unix.Capget(&head, &data[0])
	}
	if err == nil {
		data[0].Inheritable, data[1].Inheritable = 0, 0
		err = unix.Capset(&head, &data[0])
	}
	if err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	return nil
}
