package nfstest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fsType is how the mounts appear: nfstest:<process> on … type fuse.nfstest.
const fsType = "nfstest"

// mount has the kernel ask c for what is below dir, until it is unmounted. The
// kernel checks permissions, by the attributes that c tells.
func mount(c *client, dir string) error {
	server, err := fuse.NewServer(c, dir, &fuse.MountOptions{
		AllowOther: true, Options: []string{"default_permissions"},
		FsName: fmt.Sprintf("%s:%d", fsType, os.Getpid()), Name: fsType,
		DirectMountStrict: true, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOATIME,
		DisableXAttrs: true, DisableReadDirPlus: true, EnableLocks: true,
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	go server.Serve() // to the end of the process, or of the mount
	if err := server.WaitMount(); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// unmountDead unmounts what processes have left that are no more.
func unmountDead() {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return
	}
	defer table.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// 36 35 98:0 / /mnt rw,nosuid shared:1 - fuse.nfstest nfstest:123 rw: proc_pid_mountinfo(5)
		at, what, _ := strings.Cut(lines.Text(), " - ")
		fields, source := strings.Fields(at), strings.Fields(what)
		if len(fields) < 5 || len(source) < 2 || source[0] != "fuse."+fsType {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(source[1], fsType+":"))
		if err != nil || !errors.Is(unix.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		_ = unix.Unmount(unescape(fields[4]), unix.MNT_DETACH) // another server may have been first
	}
}

// unescape undoes how the kernel writes spaces and the like: \040.
func unescape(name string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}
