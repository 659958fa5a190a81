package container_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

func TestCommandIsRootOverAWritableRoot(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), ShellCommand: `
set -e
id -u; id -g
touch /made /etc/made /usr/made /tmp/made /root/made
echo changed >>/usr/shipped; cat /usr/shipped
rm /usr/shipped /etc/passwd
mv /etc /etc2; mkdir /etc; rm -r /etc2
stat -c %u:%g:%a /tmp /bin/sh
mkdir -m 0 /locked /locked2; touch /locked2/x 2>/dev/null || true`}
	want := "0\n0\nby the image\nchanged\n0:0:1777\n0:0:755\n"
	for range 2 { // the second run finds the image as the first did
		if got := shell(t, c); got != want {
			t.Errorf("output %q, want %q", got, want)
		}
	}
}

func TestEnvironmentIsTheImagesAndTheCallersAlone(t *testing.T) {
	t.Parallel()
	got := shell(t, container.Container{
		SIF:  shellImage(t),
		Args: []string{"env"},
		Env:  []string{"HOME=/0x1", "MULTI=a\nb", "LD_LIBRARY_PATH=/nowhere", "EMPTY="},
	})
	want := []string{"PATH=/bin", `QUOTED=it's "$HOME"`, "HOME=/0x1", "MULTI=a", "b", "LD_LIBRARY_PATH=/nowhere", "EMPTY=", "PWD=/"}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	slices.Sort(lines)
	slices.Sort(want)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestExitStatusAndSignalAreTheCommands(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for _, tt := range []struct {
		name         string
		args         []string
		code, signal int
	}{
		{"success", []string{"true"}, 0, 0},
		{"failure", []string{"sh", "-c", "exit 7"}, 7, 0},
		{"largest", []string{"sh", "-c", "exit 255"}, 255, 0},
		{"one", []string{"false"}, 1, 0},
		{"killed", []string{"sh", "-c", "kill -KILL $$"}, 137, 9},
		{"segmentation fault", []string{"sh", "-c", "kill -SEGV $$"}, 139, 11},
		{"terminated", []string{"sh", "-c", "kill -TERM $$"}, 143, 15},
		{"missing program", []string{"/no/such/program"}, 127, 0},
		{"missing in PATH", []string{"nosuchprogram"}, 127, 0},
		{"not executable", []string{"/etc/passwd"}, 126, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, container.Container{SIF: image, Args: tt.args})
			answer := r.wait()
			if answer.Error != "" || answer.Exit.Code != tt.code || answer.Exit.Signal != tt.signal {
				t.Errorf("%+v, want exit status %d by signal %d; output %q", answer, tt.code, tt.signal, r.output())
			}
		})
	}
}

// The container's processes may be waited for in any order.
func TestExitStatusIsKeptHoweverQuickTheEnd(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), Args: []string{"sh", "-c", "exit 7"}, Scratch: t.TempDir()}
	emptied(t, c.Scratch)
	var group errgroup.Group
	group.SetLimit(8)
	for range 32 {
		group.Go(func() error {
			exit, err := container.Builtin{}.Run(t.Context(), c)
			if err == nil && exit.Code != 7 {
				err = fmt.Errorf("exit status %d, want 7", exit.Code)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestBindsShowTheHostsFilesAndNoMoreThanAsked(t *testing.T) {
	t.Parallel()
	work, dependency := userDir(t), userDir(t)
	if err := os.WriteFile(filepath.Join(dependency, "data"), []byte("precious\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := shell(t, container.Container{
		SIF: shellImage(t),
		Dir: "/0xabc",
		Binds: []container.Bind{
			{Source: work, Target: "/0xabc"},
			{Source: dependency, Target: "/0xabc_dependencies/input", ReadOnly: true},
			{Source: filepath.Join(dependency, "data"), Target: "/etc/one-file", ReadOnly: true},
		},
		ShellCommand: `
pwd; cat /0xabc_dependencies/input/data /etc/one-file
echo result >result
for f in /0xabc_dependencies/input/data /0xabc_dependencies/input/new /etc/one-file; do
	(echo spoiled >$f) 2>/dev/null && echo "wrote $f"
done
mount -o remount,rw,bind /0xabc_dependencies/input 2>/dev/null && echo remounted
umount /0xabc_dependencies/input 2>/dev/null && echo unmounted
rm -f /0xabc_dependencies/input/data 2>/dev/null && echo removed
true`,
	})
	if want := "/0xabc\nprecious\nprecious\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(work, "result"), &stat); err != nil {
		t.Fatal(err)
	}
	if cred := ordinaryUser(t); cred != nil && stat.Uid != cred.Uid {
		t.Errorf("the result belongs to %d, want %d", stat.Uid, cred.Uid)
	}
}

func TestExactBindsFollowNoSymbolicLink(t *testing.T) {
	t.Parallel()
	dir := userDir(t)
	for _, name := range []string{"real/set/data", "secret/set/data"} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(filepath.Base(filepath.Dir(filepath.Dir(name)))+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("secret", filepath.Join(dir, "swapped")); err != nil {
		t.Fatal(err)
	}
	c := container.Container{
		SIF: shellImage(t),
		Binds: []container.Bind{
			{Source: filepath.Join(dir, "real/set"), Target: "/set", ReadOnly: true, Exact: true},
			{Source: filepath.Join(dir, "real/set/data"), Target: "/file", ReadOnly: true, Exact: true},
		},
		ShellCommand: "cat /set/data /file; (echo x >/set/data) 2>/dev/null && echo wrote; (echo x >/file) 2>/dev/null && echo wrote; true",
	}
	if got := shell(t, c); got != "real\nreal\n" {
		t.Errorf("output %q", got)
	}
	c.Binds[0].Source = filepath.Join(dir, "swapped/set")
	if answer := start(t, c).wait(); !strings.Contains(answer.Error, "swapped/set: there is a symbolic link in its path now") {
		t.Errorf("%+v", answer)
	}
	c.Binds[0].Exact = false
	if got := shell(t, c); got != "secret\nreal\n" {
		t.Errorf("not exact: output %q", got)
	}
}

func TestDevicesAreThoseAskedForAlone(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	const list = "ls /dev; test -c /dev/fuse && echo there"
	if got := shell(t, container.Container{SIF: image, Devices: []string{"/dev/fuse"}, ShellCommand: list}); !strings.Contains(got, "there") {
		t.Errorf("no /dev/fuse in %q", got)
	}
	got := shell(t, container.Container{SIF: image, ShellCommand: list + "; true"})
	for _, forbidden := range []string{"there", "vda", "kmsg", "mem"} {
		if slices.Contains(strings.Fields(got), forbidden) {
			t.Errorf("%s in %q", forbidden, got)
		}
	}
}

func TestNothingElseOfTheHostIsThere(t *testing.T) {
	t.Parallel()
	got := shell(t, container.Container{SIF: shellImage(t), ShellCommand: `
ls /; ls /tmp /run /var/run 2>/dev/null
cat /proc/1/comm
test $(ls /proc | grep -c '^[0-9]') -le 6 && echo few
echo descriptors: $(for f in 3 4 5 6 7 8 9 250 251 252; do test -e /proc/self/fd/$f && echo $f; done)
read line || echo no input
df -k /dev/shm | tail -1`, ShmBytes: 3 << 20})
	flat := strings.Join(strings.Fields(got), " ")
	for _, want := range []string{" usr var /tmp: bwrap few descriptors: no input", " 3072 "} {
		if !strings.Contains(flat, want) {
			t.Errorf("no %q in %q", want, flat)
		}
	}
}

func TestNetworkIsTheHostsOrNone(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	const show = "ls /sys/class/net >/dev/null; cut -s -d: -f1 /proc/net/dev; cat /etc/hosts; grep -q '127.0.0.1' /proc/net/fib_trie && echo loopback"
	none := shell(t, container.Container{SIF: image, ShellCommand: show})
	if !strings.Contains(none, "localhost") || !strings.Contains(none, "loopback") || strings.Contains(none, "eth") {
		t.Errorf("without a network: %q", none)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	all := shell(t, container.Container{SIF: image, Network: true, ShellCommand: show + "; cat /etc/resolv.conf; echo more >>/etc/hosts"})
	if !strings.Contains(all, string(hosts)) || strings.Count(all, "\n") < strings.Count(string(dev), ":") {
		t.Errorf("with the host's network: %q", all)
	}
}

func TestImageWithoutShellSaysSo(t *testing.T) {
	t.Parallel()
	r := start(t, container.Container{SIF: sif(t, v1.Config{}, imagetest.Regular("data", "no programs here")), ShellCommand: "true"})
	if answer := r.wait(); !answer.NoShell || !strings.Contains(answer.Error, "no shell") {
		t.Errorf("%+v, want ErrNoShell", answer)
	}
}

func TestBashIsPreferred(t *testing.T) {
	t.Parallel()
	files := append(smallRoot(t), imagetest.Directory("usr/bin"), imagetest.Executable("usr/bin/mybash", "#!/bin/sh\necho bash \"$@\"\n"), imagetest.Symlink("bin/bash", "/usr/bin/mybash"))
	if got := shell(t, container.Container{SIF: sif(t, v1.Config{Env: []string{"PATH=/bin"}}, files...), ShellCommand: "a 'b  c'"}); got != "bash -c a 'b  c'\n" {
		t.Errorf("output %q", got)
	}
}

// The links of a hostile image are followed inside it.
func TestImagesLinksLeadNowhereOutside(t *testing.T) {
	t.Parallel()
	victim, source := userDir(t), userDir(t)
	if err := os.WriteFile(filepath.Join(source, "f"), []byte("bound\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	files := slices.DeleteFunc(smallRoot(t), func(f imagetest.File) bool { return f.Name == "etc/resolv.conf" })
	files = append(files,
		imagetest.Symlink("etc/resolv.conf", "/oldroot"+victim+"/resolv.conf"),
		imagetest.Symlink("etc/hosts", victim+"/hosts"),
		imagetest.Symlink("absolute", victim),
		imagetest.Symlink("relative", up+victim[1:]),
		imagetest.Symlink("old", "/oldroot"+victim),
		imagetest.Symlink("loop", "loop"),
		imagetest.Symlink("dev", victim),
		imagetest.Symlink("sys", "/oldroot"+victim))
	got := shell(t, container.Container{
		SIF:     sif(t, v1.Config{Env: []string{"PATH=/bin"}}, files...),
		Network: true,
		Dir:     "/old/made",
		Binds: []container.Bind{
			{Source: source, Target: "/absolute/a"},
			{Source: source, Target: "/relative/b", ReadOnly: true},
			{Source: filepath.Join(source, "f"), Target: "/old/c"},
		},
		ShellCommand: "cat /absolute/a/f /relative/b/f /old/c; pwd; test -c /dev/null && test -d /sys/class && echo mounts",
	})
	if want := "bound\nbound\nbound\n/oldroot" + victim + "/made\nmounts\n"; got != want && got != strings.Replace(want, "/oldroot"+victim, "/old", 1) {
		t.Errorf("output %q, want %q", got, want)
	}
	if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
		t.Errorf("the host's directory holds %v, %v", left, err)
	}
}

func TestWrongRequestsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	dir := userDir(t)
	for _, tt := range []struct {
		name string
		c    container.Container
		want string
	}{
		{"no command", container.Container{SIF: image}, "no command"},
		{"no SIF", container.Container{SIF: dir + "/nosuch.sif", Args: []string{"true"}}, "no such file"},
		{"not a SIF", container.Container{SIF: "/etc/passwd", Args: []string{"true"}}, "read SIF /etc/passwd"},
		{"missing source", container.Container{SIF: image, Args: []string{"true"}, Binds: []container.Bind{{Source: dir + "/nosuch", Target: "/x"}}}, "nosuch: no such file"},
		{"relative target", container.Container{SIF: image, Args: []string{"true"}, Binds: []container.Bind{{Source: dir, Target: "x"}}}, `bind target "x" is not an absolute path`},
		{"bind in bind", container.Container{SIF: image, Args: []string{"true"}, Binds: []container.Bind{{Source: dir, Target: "/x"}, {Source: dir, Target: "/x/y"}}}, `"/x/y" lies inside "/x"`},
		{"no device", container.Container{SIF: image, Args: []string{"true"}, Devices: []string{"/etc/passwd"}}, "not a device"},
		{"relative directory", container.Container{SIF: image, Args: []string{"true"}, Dir: "x"}, `"x" is not an absolute path`},
		{"directory is a file", container.Container{SIF: image, Args: []string{"true"}, Dir: "/etc/passwd"}, "working directory: /etc/passwd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if answer := start(t, tt.c).wait(); !strings.Contains(answer.Error, tt.want) {
				t.Errorf("%+v, want an error with %q", answer, tt.want)
			}
		})
	}
}

// The whole start and end of a container, beside which the command is nothing.
func BenchmarkContainerTrue(b *testing.B) {
	c := container.Container{SIF: shellImage(b), Args: []string{"true"}, Scratch: b.TempDir()}
	emptied(b, c.Scratch)
	for b.Loop() {
		if exit, err := (container.Builtin{}).Run(b.Context(), c); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}
