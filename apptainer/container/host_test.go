package container_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// startOnHost runs a container on a host that a preparation has changed.
func startOnHost(tb testing.TB, preparation string, c container.Container) *run {
	tb.Helper()
	return testRuntime{}.startOnHost(tb, preparation, c)
}

func (w testRuntime) startOnHost(tb testing.TB, preparation string, c container.Container) *run {
	tb.Helper()
	return startRequestOnHost(tb, preparation, runRequest{Runtime: w, Container: c})
}

func startRequestOnHost(tb testing.TB, preparation string, req runRequest) *run {
	tb.Helper()
	return startRequest(tb, req, "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", preparation+"; exec "+self+" "+runAsUser)
}

// Preparations that remove a host's means to mount images.
const (
	withoutFuse     = "mount -t tmpfs none /mnt; for d in null zero full random urandom tty; do touch /mnt/$d; mount --bind /dev/$d /mnt/$d; done; mount --rbind /mnt /dev"
	fuseNotOurs     = "mount --bind /dev/full /dev/fuse; mount -o remount,bind,ro,nodev /dev/fuse"
	noSquashfuse    = "for p in squashfuse squashfuse_ll; do mount --bind /dev/null $(command -v $p); done"
	noUnsquashfs    = "mount --bind /dev/null $(command -v unsquashfs)"
	overlayOn       = "mount -t tmpfs none /mnt; mkdir /mnt/u /mnt/w; mount -t overlay -o lowerdir=/usr/bin,upperdir=/mnt/u,workdir=/mnt/w,userxattr none " // and a directory
	brokenServer    = "mount --bind /bin/false $(command -v squashfuse_ll)"
	fuseShut        = "this node does not let ordinary users open /dev/fuse, which mounts images: its mode has to be 0666"
	unpackedForThis = "the image was unpacked for this run alone, which takes time and room on the node: "
)

func TestHostThatCannotRunContainersSaysWhatTheSiteMustAllow(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	var newest forbidden // nothing
	for _, tt := range []struct {
		name, preparation string
		kernel            forbidden
		want              string
	}{
		{"no user namespaces", "echo 0 >/proc/sys/user/max_user_namespaces", newest, "this node does not let ordinary users make user namespaces: user.max_user_namespaces has to be above 0"},
		{"no bubblewrap", "mount --bind /dev/null $(command -v bwrap)", newest, "this node lacks the program bwrap: its package bubblewrap has to be installed"},
		{"broken bubblewrap", "mount --bind /bin/false $(command -v bwrap)", withoutMountSetattr(), "bubblewrap could not set the container up"},
		{"neither fuse nor unsquashfs", fuseNotOurs + "; " + noUnsquashfs, newest, fuseShut + "; and the image cannot be unpacked instead: this node lacks the program unsquashfs: its package squashfs-tools has to be installed"},
		{"broken squashfuse, no unsquashfs", brokenServer + "; " + noUnsquashfs, newest, "squashfuse, which serves the image's files, has ended (exit status 1); and the image cannot be unpacked instead: this node lacks"},
		{"unsquashfs too old", fuseNotOurs + "; mount --bind /bin/false $(command -v unsquashfs)", newest, fuseShut + "; and the image cannot be unpacked instead: unsquashfs has failed (exit status 1)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer := startRequestOnHost(t, tt.preparation, runRequest{Container: container.Container{SIF: image, Args: []string{"true"}}, Forbidden: tt.kernel}).wait()
			if !strings.Contains(answer.Error, tt.want) || strings.Contains(answer.Error, "\n") {
				t.Errorf("%+v, want the sentence %q", answer, tt.want)
			}
		})
	}
}

// writableRoot makes a change in its root that only root may make.
const (
	writableRoot = `set -e
id -u
touch /made /etc/made /usr/made /tmp/made
echo changed >>/usr/shipped; cat /usr/shipped
rm /usr/shipped /etc/passwd
mv /etc /etc2; mkdir /etc; rm -r /etc2
stat -c %u:%g:%a /tmp /bin/sh
mkdir -m 0 /locked
set +e`
	writableRootSays = "0\nby the image\nchanged\n0:0:1777\n0:0:755\n"
)

func TestImageIsUnpackedWhereItCannotBeMounted(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	overlay := userDir(t)
	for _, tt := range []struct{ name, preparation, scratch, note string }{
		{"mounted", "true", "", ""},
		{"no fuse", withoutFuse, "", "this node has no /dev/fuse, which mounts images: its kernel module fuse has to be loaded"},
		{"fuse not ours", fuseNotOurs, "", fuseShut},
		{"no squashfuse", noSquashfuse, "", "this node lacks the program squashfuse_ll: its package squashfuse has to be installed"},
		{"broken squashfuse", brokenServer, "", "squashfuse, which serves the image's files, has ended (exit status 1)"},
		{
			"no overlay", overlayOn + overlay, overlay,
			"is on a file system that overlayfs cannot write to: it has to be on a disk of the node or a tmpfs",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startOnHost(t, tt.preparation, container.Container{SIF: image, PrivateDir: tt.scratch, ShellCommand: writableRoot + "; ls /dev/fuse 2>/dev/null; exit 7"})
			answer := r.wait()
			noted := strings.HasPrefix(answer.Exit.Note, unpackedForThis) && strings.Contains(answer.Exit.Note, tt.note)
			if tt.note == "" {
				noted = answer.Exit.Note == ""
			}
			if answer.Error != "" || answer.Exit.Code != 7 || !noted || answer.Unpacked != (tt.note != "") {
				t.Errorf("%+v, want exit status 7 and %q", answer, tt.note)
			}
			if r.output() != writableRootSays {
				t.Errorf("output %q, want %q", r.output(), writableRootSays)
			}
		})
	}
}

// Apptainer has additional ways to make its root writable.
func TestApptainerIsHandedTheImageWhereItsRootCannotBeMounted(t *testing.T) {
	t.Parallel()
	w, scratch := apptainerRuntime(t), userDir(t)
	if _, err := exec.LookPath("fuse-overlayfs"); err != nil && !w.singularityCE {
		t.Skipf("Apptainer needs fuse-overlayfs for this: %v", err)
	}
	r := w.startOnHost(t, overlayOn+scratch, container.Container{
		SIF: compressedShellImage(t, w.ownCompression(t)), PrivateDir: scratch, ShellCommand: "touch /etc/made && grep -o fuse-overlayfs /proc/self/mountinfo; exit 7",
	})
	answer := r.wait()
	if w.singularityCE {
		if want := "SingularityCE cannot make the image writable here: the scratch, with "; !strings.Contains(answer.Error, want) {
			t.Errorf("%+v, want %q", answer, want)
		}
		return
	}
	if answer.Exit.Code != 7 || answer.Exit.Note != "" || !strings.HasPrefix(r.output(), "fuse-overlayfs") {
		t.Errorf("%+v with output %q", answer, r.output())
	}
}

func TestImageThatFindsNoRoomIsNotUnpacked(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	info, err := os.Stat(image)
	must(t, err)
	for _, tt := range []struct {
		name string
		room int64
		want string
	}{
		{"for the image", info.Size() / 2, "it takes more than"},
		{"for its files", info.Size() + 64<<10, "there is no room for it in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scratch := userDir(t)
			small := fmt.Sprintf("; mount -t tmpfs -o size=%d none %s", tt.room, scratch)
			answer := startOnHost(t, fuseNotOurs+small, container.Container{SIF: image, PrivateDir: scratch, Args: []string{"true"}}).wait()
			if !strings.Contains(answer.Error, fuseShut+"; and the image cannot be unpacked instead: "+tt.want) {
				t.Errorf("%+v, want %q", answer, tt.want)
			}
		})
	}
}

func TestUnpackingEndsWithItsRun(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	slow := filepath.Join(userDir(t), "slow")
	testenv.WriteProgram(t, slow, []byte("#!/bin/sh\nexec sleep 1000\n"))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			r := startOnHost(t, fuseNotOurs+"; mount --bind "+slow+" $(command -v unsquashfs)", container.Container{SIF: image, Args: []string{"true"}})
			var parts []process
			testenv.Await(t, "the image is being unpacked", func() bool {
				parts = r.processes()
				return slices.ContainsFunc(parts, func(p process) bool { return p.name == "sleep" })
			}, &parts)
			must(t, r.cmd.Process.Signal(signal))
			if signal == syscall.SIGKILL {
				_ = r.cmd.Wait()
			} else if answer := r.wait(); !answer.Canceled || !strings.Contains(answer.Error, "stopped before the command began") {
				t.Errorf("%+v", answer)
			}
			testenv.Await(t, "no process is left", func() bool {
				parts = slices.DeleteFunc(parts, func(p process) bool { return !slices.Contains(processTable(t), p) })
				return len(parts) == 0
			}, &parts)
		})
	}
}

// A directory that a container may only read may have other disks below it.
func TestReadOnlyBindHasNoWritableMountBelow(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(testing.TB) testRuntime{
		"builtin":   func(testing.TB) testRuntime { return testRuntime{} },
		"apptainer": apptainerRuntime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := find(t), userDir(t)
			must(t, os.Mkdir(filepath.Join(dir, "a disk"), 0o777))
			must(t, os.Chmod(filepath.Join(dir, "a disk"), 0o777))
			for _, exact := range []bool{false, true} {
				c := w.shellImage(t)
				c.Binds = []container.Bind{{Source: dir, Target: "/work", ReadOnly: true, Exact: exact}}
				c.ShellCommand = "grep -c /work /proc/self/mountinfo; cat '/work/a disk/f'; touch '/work/a disk/new' 2>/dev/null && echo written"
				r := w.startOnHost(t, fmt.Sprintf("mount -t tmpfs none '%[1]s/a disk'; echo below >'%[1]s/a disk/f'", dir), c)
				if answer := r.wait(); answer.Error != "" || !strings.HasSuffix(r.output(), "\nbelow\n") {
					t.Errorf("exact %v: %+v, output %q", exact, answer, r.output())
				}
			}
		})
	}
}
