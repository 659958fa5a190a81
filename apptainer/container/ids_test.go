package container_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// ownersImage returns an image with programs that deal with owners.
func ownersImage(tb testing.TB, w testRuntime) container.Container {
	tb.Helper()
	return w.image(tb, v1.Config{Env: []string{"PATH=/bin"}}, append(smallRoot(tb), programs(tb, "chgrp", "chmod", "cp", "find", "install", "rmdir", "setpriv", "tar")...)...)
}

// programs returns programs of this machine, for /bin, with their libraries.
func programs(tb testing.TB, names ...string) (files []imagetest.File) {
	tb.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		must(tb, err)
		content, err := os.ReadFile(path)
		must(tb, err)
		files = append(files, imagetest.Executable("bin/"+name, string(content)))
		for _, library := range libraries(tb, path) {
			content, err := os.ReadFile(library)
			must(tb, err)
			files = append(files, imagetest.Executable(library[1:], string(content)))
		}
	}
	return files
}

func TestRootChangesOwnersAndUsersInARange(t *testing.T) {
	t.Parallel()
	w := rangedRuntime(t)
	c := ownersImage(t, w)
	work := userDir(t)
	c.Dir, c.Binds = "/work", []container.Bind{{Source: work, Target: "/work"}}
	c.ShellCommand = `
set -e
stat -c %u:%g /var/others
echo more >>/var/others
mv /var/others /var/mine; rm /var/mine
mkdir -p tree/closed; echo secret >tree/closed/file
chown -R 1000:1000 tree; chmod 0700 tree/closed; chmod 0600 tree/closed/file
tar -cf a.tar tree; rm -r tree; tar -xzf a.tar 2>/dev/null || tar -xf a.tar
cp -a tree copy; install -o 5 -g 60 -m 0640 a.tar installed
stat -c '%n %u:%g' tree/closed/file copy/closed/file installed
cat copy/closed/file
setpriv --reuid 1000 --regid 1000 --groups 65534 id
setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'cat tree/closed/file; cat installed 2>/dev/null || echo no; touch tree/made; touch /work/made 2>/dev/null || echo not mine'
chown 65534:65534 /work/copy
chown 7 /work`
	want := `1234:1234
tree/closed/file 1000:1000
copy/closed/file 1000:1000
installed 5:60
secret
uid=1000 gid=1000 groups=1000,65534
secret
no
not mine
`
	if got := w.shell(t, c); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	wantOwned(t, work)
}

func TestUnpackedImageKeepsItsOwnersInARange(t *testing.T) {
	t.Parallel()
	w := rangedRuntime(t)
	c := ownersImage(t, w)
	c.ShellCommand = "stat -c '%n %u:%g:%a' /var/others /bin/sh /tmp; chown 1000:1000 /var/others; rm /var/others; stat -c %u:%g /var"
	// A user in a namespace with many ids has ranges, too.
	const ranges = "for f in subuid subgid; do echo root:1:65535 >/mnt/$f; mount --bind /mnt/$f /etc/$f; done"
	r := startRequest(t, runRequest{Container: c}, "unshare", "--user", "--map-root-user", "--map-auto", "--mount", "sh", "-ec",
		"mount -t tmpfs none /mnt; "+ranges+"; "+noSquashfuse+"; exec "+self+" "+runAsUser)
	answer := r.wait()
	const want = "/var/others 1234:1234:644\n/bin/sh 0:0:755\n/tmp 0:0:1777\n0:0\n"
	if answer.Error != "" || answer.Exit.Code != 0 || r.output() != want || !strings.HasPrefix(answer.Exit.Note, unpackedForThis) || strings.Contains(answer.Exit.Note, "only one user id") {
		t.Errorf("%+v with the output %q, want %q", answer, r.output(), want)
	}
}

// wantOwned wants everything below a directory to belong to the ordinary user.
func wantOwned(tb testing.TB, dir string) {
	tb.Helper()
	user := testenv.Researcher(tb)
	must(tb, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err := errors.Join(err, syscall.Lstat(name, &st)); err != nil {
			return err
		}
		if int(st.Uid) != user.UID || int(st.Gid) != user.GID {
			tb.Errorf("%s belongs to %d:%d, want %d:%d", name, st.Uid, st.Gid, user.UID, user.GID)
		}
		return nil
	}))
}

// leaveForeignFiles is a command that leaves files of other ids where only root in a container may remove
// them, and then waits.
const leaveForeignFiles = `
set -e
for dir in /work /opt /work/deep/a/b/c; do
	mkdir -p $dir/closed/in; echo result >$dir/closed/in/file; echo x >$dir/file
	chown -R 1000:1000 $dir/closed $dir/file; chmod 0700 $dir/closed; chmod 0 $dir/closed/in
done
chown 4:4 /work; chmod 0700 /work
echo begun
while :; do sleep 1000; done`

// foreign counts the entries below a directory that do not belong to the ordinary user.
func foreign(tb testing.TB, dir string) (n int) {
	tb.Helper()
	user := testenv.Researcher(tb)
	must(tb, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err := errors.Join(err, syscall.Lstat(name, &st)); err != nil {
			return err
		}
		if int(st.Uid) != user.UID {
			n++
		}
		return nil
	}))
	return n
}

// removeTree removes a directory as the ordinary user does.
func removeTree(tb testing.TB, dir string) error {
	tb.Helper()
	cmd := exec.Command("/proc/self/exe", removeAsUser, dir)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(tb)}
	if output, err := cmd.CombinedOutput(); err != nil {
		return errors.New(string(output))
	}
	return nil
}

func TestFilesOfAKilledContainerAreTheUsersAgain(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // only root can look at them
	w := rangedRuntime(t)
	c := ownersImage(t, w)
	for _, victim := range []string{"init", "caller"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			c := c
			work := filepath.Join(userDir(t), "work") // its parent belongs to the user, too
			must(t, os.Mkdir(work, 0o755))
			must(t, os.Chown(work, ordinaryUID(t), testenv.Researcher(t).GID))
			c.Binds, c.ShellCommand = []container.Bind{{Source: work, Target: "/work"}}, leaveForeignFiles
			r := w.start(t, c)
			r.awaitBegun()
			parts := r.processes()
			pid := r.cmd.Process.Pid
			if victim == "init" {
				pid = r.victim(victim, parts)
			}
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			if victim == "init" {
				if answer := r.wait(); !strings.Contains(answer.Error, "its init ended without a report") {
					t.Errorf("%+v", answer)
				}
				wantOwned(t, work)
			} else {
				_ = r.cmd.Wait() // it was killed
				r.awaitNothing("no such token", parts)
				if foreign(t, work) == 0 {
					t.Error("the command left no files of other ids, so this test shows nothing")
				}
			}
			for _, dir := range []string{work, r.req.Container.PrivateDir} {
				if dir != work && foreign(t, dir) == 0 {
					t.Errorf("no file of another id is in %s, so this test shows nothing", dir)
				}
				if err := removeTree(t, dir); err != nil && !strings.Contains(err.Error(), "unlinkat "+dir+":") { // /tmp is sticky
					t.Errorf("remove %s: %v", dir, err)
				}
				if left, err := os.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) && (err != nil || len(left) > 0) {
					t.Errorf("left in %s: %v, %v", dir, left, err)
				}
			}
		})
	}
}

// Servers of NFS refuse to give files to other users. In a project's directory, new entries get the project's
// group, and the kernel lets no container without that group change their owner.
func TestDirectoryThatRefusesOwnersGetsOneID(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	w := rangedRuntime(t)
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, dir string)
		note    string
	}{
		"disk":    {denyChown, "operation not permitted"},
		"project": {setgid, "operation not permitted (setgid gives its files a group that the container does not have)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := userDir(t)
			tt.prepare(t, dir)
			c := w.shellImage(t)
			c.Binds = []container.Bind{{Source: dir, Target: "/work"}}
			c.ShellCommand = "touch /work/made; tail -n +2 /proc/self/uid_map; ls -A /work"
			r := w.start(t, c)
			answer := r.wait()
			note := "the container has only one user id: no file in " + dir + " can be given to another id: "
			if answer.Error != "" || r.output() != "made\n" || !strings.HasPrefix(answer.Exit.Note, note) || !strings.HasSuffix(answer.Exit.Note, tt.note) {
				t.Errorf("%+v with the output %q, want only the file made, and the note %q", answer, r.output(), note+tt.note)
			}
		})
	}
}

// denyChown mounts a disk that refuses to change owners.
func denyChown(t *testing.T, dir string) {
	t.Helper()
	testenv.FUSE(t)
	bindfs, err := exec.LookPath("bindfs")
	if err != nil {
		t.Skipf("needs bindfs: %v", err)
	}
	output, err := exec.Command(bindfs, "--chown-deny", "--chgrp-deny", "-o", "allow_other", userDir(t), dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }) // its program ends with it
}

// setgid gives a directory to a group of which the ordinary user is no member.
func setgid(t *testing.T, dir string) {
	t.Helper()
	const adm = 4
	must(t, errors.Join(os.Chown(dir, ordinaryUID(t), adm), os.Chmod(dir, fs.ModeSetgid|0o777)))
}
