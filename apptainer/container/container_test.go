package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
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

// The container's processes may be waited for in any order.
func TestExitStatusIsKeptHoweverQuickTheEnd(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), Args: []string{"sh", "-c", "exit 7"}, Scratch: t.TempDir()}
	emptied(t, c.Scratch)
	var group errgroup.Group
	group.SetLimit(8)
	for range 32 {
		group.Go(func() error {
			exit, err := builtin.Runtime{}.Run(t.Context(), c)
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
	must(t, err)
	dev, err := os.ReadFile("/proc/net/dev")
	must(t, err)
	all := shell(t, container.Container{SIF: image, Network: true, ShellCommand: show + "; cat /etc/resolv.conf; echo more >>/etc/hosts"})
	if !strings.Contains(all, string(hosts)) || strings.Count(all, "\n") < strings.Count(string(dev), ":") {
		t.Errorf("with the host's network: %q", all)
	}
}

// The links of a hostile image are followed inside it.
func TestImagesLinksLeadNowhereOutside(t *testing.T) {
	t.Parallel()
	victim, source := userDir(t), userDir(t)
	must(t, os.WriteFile(filepath.Join(source, "f"), []byte("bound\n"), 0o644))
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
		if exit, err := (builtin.Runtime{}).Run(b.Context(), c); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}
