package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Preparations of a node: other ranges, another newuidmap, and ranges in a directory service.
const (
	directory = "mount -t tmpfs none /mnt; echo subid: sss >/mnt/n; mount --bind /mnt/n /etc/nsswitch.conf"
	ranges    = "mount -t tmpfs none /mnt; for f in subuid subgid; do printf '%s' >/mnt/$f; mount --bind /mnt/$f /etc/$f; done"
	mapperIs  = "mount -t tmpfs none /mnt; cp %s /mnt/program; chmod %s /mnt/program; mount --bind /mnt/program /usr/bin/newuidmap"
)

// A container has the user's subordinate ids where it can, and otherwise runs with one.
func TestNodeWithoutUsableRangesGivesOneIDAndTheReason(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.SubordinateIDs(t)
	for name, tt := range map[string]struct {
		preparation string
		extents     string // lines of /proc/self/uid_map
		reason      string // of one id
	}{
		"a range":           {"true", "2", ""},
		"several ranges":    {format(ranges, `researcher:300000:1000\nother:1:1\nresearcher:400000:70000\n`), "3", ""},
		"by number":         {format(ranges, `1001:300000:65536\n`), "2", ""},
		"capabilities":      {"mount --bind " + mapperWithCapabilities(t) + " /usr/bin/newuidmap", "2", ""},
		"no range":          {format(ranges, `other:1:1\n`), "1", "/etc/subuid: it gives this user (researcher) no range of ids"},
		"short range":       {format(ranges, `researcher:300000:1000\n`), "1", "/etc/subuid: it gives this user (researcher) 1000 ids, and a container needs 65535"},
		"no file":           {"mount --bind /dev/null /etc/subuid", "1", "/etc/subuid: it gives this user (researcher) no range of ids"},
		"groups alone lack": {"mount --bind /dev/null /etc/subgid", "1", "/etc/subgid: it gives this user (researcher) no range of ids"},
		"no program":        {"mount --bind /dev/null /usr/bin/newgidmap", "1", "this node lacks the program newgidmap: its package uidmap (on RHEL shadow-utils) has to be installed"},
		"no privilege":      {format(mapperIs, "/usr/bin/newuidmap", "0755"), "1", "/usr/bin/newuidmap is neither setuid nor has it capabilities"},
		"nosuid":            {"mount --bind /usr/bin /usr/bin; mount -o remount,bind,nosuid /usr/bin", "1", "/usr/bin/newuidmap has no privileges, because its file system is mounted nosuid"},
		"no new privileges": {"options=--no-new-privs", "1", "this process may not gain privileges (no_new_privs), which newuidmap needs"},
		"refusal":           {format(mapperIs, "/bin/false", "4755"), "1", "/usr/bin/newuidmap has failed: "},
		"overlap":           {format(ranges, `researcher:1000:65536\n`), "1", "/etc/subuid: it gives this user (researcher) no range of ids"},
		"not allowed":       {format(ranges, `researcher:300000:65536\n`) + "; umount /etc/subgid; printf 'other:1:1' >/mnt/subgid; mount --bind /mnt/subgid /etc/subgid", "1", "/etc/subgid: it gives this user (researcher) no range of ids"},
		"directory service": {directory + "; mount --bind /bin/false /usr/bin/getsubids", "1", "sss gives this user (researcher) no range of ids: /usr/bin/getsubids has failed: "},
		"no getsubids":      {directory + "; mount --bind /dev/null /usr/bin/getsubids", "1", "/etc/nsswitch.conf has the subordinate ids in sss, and this node lacks the program getsubids (shadow-utils) to ask it"},
		// Without the service's library, getsubids and newuidmap read the files.
		"directory's ranges": {directory, "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := prepare(t, "wc -l </proc/self/uid_map; id -u; touch made", nil)
			x.inNamespace(tt.preparation)
			code, exit := x.start().wait()
			reasons := exit.Ran.Reason + " " + exit.Note
			const sentence = "the container has only one user id: "
			if code != 0 || x.file("stdout") != tt.extents+"\n0\n" {
				t.Errorf("exit code %d, %+v, stdout %q, the worker said: %s", code, exit, x.file("stdout"), x.log.String())
			}
			if tt.reason == "" && strings.Contains(strings.ToLower(reasons), sentence) || !strings.Contains(reasons, tt.reason) ||
				tt.reason != "" && !strings.Contains(strings.ToLower(reasons), sentence) {
				t.Errorf("reason %q, note %q, want %q", exit.Ran.Reason, exit.Note, tt.reason)
			}
		})
	}
}

// mapperWithCapabilities returns a newuidmap as Fedora and RHEL install it.
func mapperWithCapabilities(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/usr/bin/newuidmap")
	must(t, err)
	file := filepath.Join(testenv.SharedDir(t), "newuidmap")
	testenv.WriteProgram(t, file, program)
	// linux/capability.h: vfs_cap_data of version 2, with CAP_SETUID, effective
	capabilities := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	for _, set := range []uint32{1 << unix.CAP_SETUID, 0, 0, 0} {
		capabilities = binary.LittleEndian.AppendUint32(capabilities, set)
	}
	must(t, unix.Setxattr(file, "security.capability", capabilities, 0))
	return file
}

// format replaces each %s of a text, in turn.
func format(text string, with ...string) string {
	for _, w := range with {
		text = strings.Replace(text, "%s", w, 1)
	}
	return text
}
