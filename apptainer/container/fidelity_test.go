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

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// These tests and those of stop_test.go are the fidelity suite: the promises to a command with
// every runtime. docs/containers.md has a table of the differences, which are marked here.

func TestFidelityCommandLooksLikeRootAndWritesEverywhere(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.plain() && w.singularityCE {
			t.Skip("with SingularityCE the command runs as the user, as the table in docs/containers.md lists")
		}
		c := w.shellImage(t)
		c.ShellCommand = `
set -e
id -u; id -g
mkdir -p /tmp
touch /made /etc/made /usr/made /tmp/made /root/made 2>/dev/null || touch /made /etc/made /usr/made /tmp/made
echo changed >>/usr/shipped; cat /usr/shipped
rm /usr/shipped /bin/true
mv /usr /usr2; mkdir /usr; rm -r /usr2
stat -c %u:%g:%a /bin/sh`
		want := "0\n0\nby the image\nchanged\n0:0:755\n"
		for range 2 { // the second run must find the image unchanged
			if got := w.shell(t, c); got != want {
				t.Errorf("output %q, want %q", got, want)
			}
		}
	})
}

func TestFidelityEnvironmentIsTheImagesAndTheCallersAlone(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.Args = []string{"env", "-0"}
		c.Env = []string{
			"HOME=/0x1", "LD_LIBRARY_PATH=/nowhere", "EMPTY=", "PWD=/",
			"LINES=a\nb\n\n", `MARKS=' " \ $HOME $(id) ` + "`id`" + ` %s ; & | < > * ~ # !`, "UTF8=naïve – 猫", "SPACES=  x  ",
			"EQUALS=a=b=", "lower-case.dots=1", "APPTAINERENV_X=1", "SINGULARITYENV_PATH=/x", "CONTROL=\x01\t",
		}
		got := strings.Split(strings.TrimSuffix(w.shell(t, c), "\x00"), "\x00")
		want := append([]string{"PATH=/bin", `QUOTED=it's "$HOME"`}, c.Env...)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
	})
}

// An image may set as many variables as it likes. Docker sets no limit.
func TestFidelityVeryManyVariablesAndALongCommandAreTaken(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		want := []string{"PWD=/"} // which some runtimes set
		for i := range 4000 {
			want = append(want, fmt.Sprintf("VARIABLE%d=a\nb%d", i, i))
		}
		c.Env = want
		c.Args = []string{"env", "-0"}
		got := strings.Split(w.shell(t, c), "\x00")
		for _, v := range want {
			if !slices.Contains(got, v) {
				t.Fatalf("no %q among %d variables", v, len(got))
			}
		}
		if len(got) != len(want)+4 { // PATH, HOME, QUOTED, and the end
			t.Errorf("%d variables, and %d asked for: %q", len(got), len(want), got[:6])
		}
		for name, code := range map[string]int{"nosuchprogram": 127, "/etc": 126} {
			c.Args = []string{name}
			if answer := w.start(t, c).wait(); answer.Error != "" || answer.Exit.Code != code {
				t.Errorf("%s: %+v", name, answer)
			}
		}
		c.Args, c.ShellCommand = nil, "echo $VARIABLE7; true "+strings.Repeat("x", 131000-30)
		if got := w.shell(t, c); got != "a b7\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestFidelityWorkingDirectoryIsMadeAndHomeIsRoots(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.Dir, c.ShellCommand = "/made/for it", "pwd; echo $HOME; touch here"
		if got := w.shell(t, c); got != "/made/for it\n/root\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestFidelityExitStatusAndSignalAreTheCommands(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		image := w.shellImage(t)
		for _, tt := range []struct {
			name         string
			args         []string
			code, signal int
		}{
			{"success", []string{"true"}, 0, 0},
			{"failure", []string{"sh", "-c", "exit 7"}, 7, 0},
			{"largest", []string{"sh", "-c", "exit 255"}, 255, 0},
			{"one", []string{"false"}, 1, 0},
			{"as an engine's own", []string{"sh", "-c", "exit 125"}, 125, 0},
			{"killed", []string{"sh", "-c", "kill -KILL $$"}, 137, 9},
			{"segmentation fault", []string{"sh", "-c", "kill -SEGV $$"}, 139, 11},
			{"terminated", []string{"sh", "-c", "kill -TERM $$"}, 143, 15},
			{"missing program", []string{"/no/such/program"}, 127, 0},
			{"missing in PATH", []string{"nosuchprogram"}, 127, 0},
			{"not executable", []string{"/etc/made-by-hand"}, 126, 0},
			{"a directory", []string{"/etc"}, 126, 0},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				c := image
				c.Args = tt.args
				c.Binds = []container.Bind{{Source: fileOf(t, "no program\n"), Target: "/etc/made-by-hand", ReadOnly: true}}
				r := w.start(t, c)
				answer := r.wait()
				if answer.Error != "" || answer.Exit.Code != tt.code || answer.Exit.Signal != tt.signal {
					t.Errorf("%+v, want exit status %d by signal %d; output %q", answer, tt.code, tt.signal, r.output())
				}
			})
		}
	})
}

// fileOf returns a file of the ordinary user's that anybody may read.
func fileOf(tb testing.TB, content string) string {
	tb.Helper()
	name := filepath.Join(userDir(tb), "file")
	must(tb, os.WriteFile(name, []byte(content), 0o644))
	return name
}

func TestFidelityBindsShowTheHostsFilesAndNoMoreThanAsked(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		work, dependency := userDir(t), filepath.Join(userDir(t), `with, comma:colon "and" spaces`)
		must(t, os.Mkdir(dependency, 0o777))
		must(t, os.WriteFile(filepath.Join(dependency, "data"), []byte("precious\n"), 0o666))
		must(t, errors.Join(os.Chmod(dependency, 0o777), os.Chmod(filepath.Join(dependency, "data"), 0o666)))
		c := w.shellImage(t)
		c.Dir = "/0xabc"
		c.Binds = []container.Bind{
			{Source: work, Target: "/0xabc"},
			{Source: dependency, Target: "/0xabc_dependencies/in, put", ReadOnly: true},
			{Source: filepath.Join(dependency, "data"), Target: "/etc/one-file", ReadOnly: true},
		}
		c.ShellCommand = `
pwd; cat "/0xabc_dependencies/in, put/data" /etc/one-file
echo result >result; mkdir -m 0700 own; echo deep >own/file; mkdir -p shared/a; touch shared/a/b
chown 5:5 own/file 2>/dev/null
for f in "/0xabc_dependencies/in, put/data" "/0xabc_dependencies/in, put/new" /etc/one-file; do
	(echo spoiled >"$f") 2>/dev/null && echo "wrote $f"
done
mount -o remount,rw,bind "/0xabc_dependencies/in, put" 2>/dev/null && echo remounted
umount "/0xabc_dependencies/in, put" 2>/dev/null && echo unmounted
rm -f "/0xabc_dependencies/in, put/data" 2>/dev/null && echo removed
true`
		if got := w.shell(t, c); got != "/0xabc\nprecious\nprecious\n" {
			t.Errorf("output %q", got)
		}
		for _, name := range []string{"result", "own", "own/file", "shared/a/b"} {
			var stat syscall.Stat_t
			must(t, syscall.Stat(filepath.Join(work, name), &stat))
			if (w.Pods != nil || w.Apptainer != nil && w.Apptainer.Plain) && name == "own/file" {
				continue // it belongs to one of the user's ids in /etc/subuid, or to any id of root's
			}
			if int(stat.Uid) != w.callersUID(t) {
				t.Errorf("%s belongs to %d, want %d", name, stat.Uid, w.callersUID(t))
			}
		}
	})
}

func TestFidelityExactBindsFollowNoSymbolicLink(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		dir := userDir(t)
		for _, name := range []string{"real/set/data", "secret/set/data"} {
			name = filepath.Join(dir, name)
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			must(t, os.WriteFile(name, []byte(filepath.Base(filepath.Dir(filepath.Dir(name)))+"\n"), 0o644))
		}
		must(t, os.Symlink("secret", filepath.Join(dir, "swapped")))
		c := w.shellImage(t)
		c.Binds = []container.Bind{
			{Source: filepath.Join(dir, "real/set"), Target: "/set", ReadOnly: true, Exact: true},
			{Source: filepath.Join(dir, "real/set/data"), Target: "/file", ReadOnly: true, Exact: true},
		}
		c.ShellCommand = "cat /set/data /file; (echo x >/set/data) 2>/dev/null && echo wrote; (echo x >/file) 2>/dev/null && echo wrote; true"
		if got := w.shell(t, c); got != "real\nreal\n" {
			t.Errorf("output %q", got)
		}
		c.Binds[0].Source = filepath.Join(dir, "swapped/set")
		if answer := w.start(t, c).wait(); !strings.Contains(answer.Error, "swapped/set: there is a symbolic link in its path now") {
			t.Errorf("%+v", answer)
		}
		c.Binds[0].Exact = false
		if got := w.shell(t, c); got != "secret\nreal\n" {
			t.Errorf("not exact: output %q", got)
		}
	})
}

func TestFidelityDevicesAreThoseAskedForAlone(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.Devices, c.ShellCommand = []string{"/dev/fuse"}, "test -c /dev/fuse && echo there"
		if w.Pods != nil {
			if answer := w.start(t, c).wait(); answer.Fault != "request" || !strings.Contains(answer.Error, "the devices of a pod come from the device plugins of its node") {
				t.Errorf("%+v", answer)
			}
		} else if got := w.shell(t, c); got != "there\n" {
			t.Errorf("no /dev/fuse: %q", got)
		}
		c.Devices, c.ShellCommand = nil, "ls /dev; for d in null zero full random urandom tty; do test -c /dev/$d || echo no $d; done; echo x >/dev/null"
		got := w.shell(t, c)
		for name := range strings.FieldsSeq(got) {
			if !slices.Contains(strings.Fields("console core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"), name) && name != "no" {
				t.Errorf("/dev/%s is there", name)
			}
		}
		if strings.Contains(got, "no ") {
			t.Errorf("something lacks in %q", got)
		}
	})
}

func TestFidelitySysIsReadOnly(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.ShellCommand = "grep -o ' /sys r[ow]' /proc/self/mountinfo; ls -d /sys/devices"
		if got := w.shell(t, c); got != " /sys ro\n/sys/devices\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestFidelityNothingOfTheHostIsVisible(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.ShmBytes = 3 << 20
		c.ShellCommand = `
for d in /home /tmp /var/tmp /run /mnt /srv /opt; do for f in $d/* $d/.[!.]*; do test -e "$f" && echo "see $f"; done; done
test -e /run/munge && echo munge
test $(ls /proc | grep -c '^[0-9]') -le 6 || echo processes
echo descriptors: $(for f in 3 4 5 6 7 8 9 250 251 252; do test -e /proc/self/fd/$f && echo $f; done)
read line || echo no input
cat /proc/1/environ 2>/dev/null | grep -c SECRET
env | grep -c SECRET
df -k /dev/shm | tail -1 | grep -o ' 3072 ' | head -1 2>/dev/null || df -k /dev/shm | tail -1
true`
		got := w.shell(t, c)
		for line := range strings.Lines(got) {
			switch line = strings.TrimSpace(line); {
			case line == "descriptors:", line == "no input", line == "0", line == "", line == "3072":
			case strings.Contains(line, " 3072 "): // of /dev/shm
			case w.Engine != nil && strings.HasPrefix(line, "see /run/"): // Podman's own mark
			case (w.Apptainer != nil || w.Pods != nil) && line == "see /run/resolve": // the target of the image's resolv.conf, for which they bind a file
			case w.Apptainer != nil && w.Apptainer.Plain && strings.Contains(line, "/dev/shm"): // half of all memory
			default:
				t.Errorf("%q", line)
			}
		}
	})
}

func TestFidelityNoNetworkUnlessAskedFor(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.Pods != nil {
			t.Skip("a pod always has the cluster's network")
		}
		c := w.shellImage(t)
		c.ShellCommand = "cut -s -d: -f1 /proc/net/dev; grep -q 127.0.0.1 /proc/net/fib_trie && echo loopback; grep -o localhost /etc/hosts | grep -m1 localhost"
		got := strings.Fields(w.shell(t, c))
		if diff := cmp.Diff([]string{"lo", "loopback", "localhost"}, slices.DeleteFunc(got, func(word string) bool {
			return strings.HasPrefix(word, "tunl") || strings.HasPrefix(word, "sit") || strings.HasPrefix(word, "gre") || strings.HasPrefix(word, "ip6") || strings.HasPrefix(word, "erspan") || strings.HasPrefix(word, "ip_vti")
		})); diff != "" {
			t.Errorf("without a network (-want +got):\n%s", diff)
		}
		if w.Engine != nil {
			return // the engine's configuration decides about its network
		}
		dev, err := os.ReadFile("/proc/net/dev")
		must(t, err)
		hosts, err := os.ReadFile("/etc/hosts")
		must(t, err)
		c.Network, c.ShellCommand = container.HostNetwork, "cut -s -d: -f1 /proc/net/dev; echo; cat /etc/hosts; cat /etc/resolv.conf >/dev/null && echo more >>/etc/hosts"
		devices, files, _ := strings.Cut(w.shell(t, c), "\n\n")
		if strings.Count(devices, "\n")+1 != strings.Count(string(dev), ":") || files != string(hosts) {
			t.Errorf("with the host's network: devices %q, /etc/hosts %q", devices, files)
		}
	})
}

func TestFidelityImageWithoutShellSaysSo(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.image(t, v1.Config{}, imagetest.Regular("data", "no programs here"))
		c.ShellCommand = "true"
		if answer := w.start(t, c).wait(); !answer.NoShell || !strings.Contains(answer.Error, "no shell") {
			t.Errorf("%+v, want ErrNoShell", answer)
		}
	})
}

func TestFidelityBashIsPreferred(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.image(t, v1.Config{Env: []string{"PATH=/bin"}}, append(smallRoot(t),
			imagetest.Directory("usr/bin"), imagetest.Executable("usr/bin/mybash", "#!/bin/sh\necho bash \"$@\"\n"), imagetest.Symlink("bin/bash", "/usr/bin/mybash"))...)
		c.ShellCommand = "a 'b  c'"
		if got := w.shell(t, c); got != "bash -c a 'b  c'\n" {
			t.Errorf("output %q", got)
		}
	})
}

func TestFidelityWrongRequestsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		image, dir := w.shellImage(t), userDir(t)
		image.Args = []string{"true"}
		for want, change := range map[string]func(c *container.Container){
			"no command":                    func(c *container.Container) { c.Args = nil },
			"nosuch: no such file":          func(c *container.Container) { c.Binds = []container.Bind{{Source: dir + "/nosuch", Target: "/x"}} },
			`"x" is not an absolute path`:   func(c *container.Container) { c.Dir = "x" },
			`bind target "x" is not an abs`: func(c *container.Container) { c.Binds = []container.Bind{{Source: dir, Target: "x"}} },
			`"/x/y" lies inside "/x"`: func(c *container.Container) {
				c.Binds = []container.Bind{{Source: dir, Target: "/x"}, {Source: dir, Target: "/x/y"}}
			},
			"not a device":        func(c *container.Container) { c.Devices = []string{"/etc/passwd"} },
			"working directory: ": func(c *container.Container) { c.Dir = "/bin/sh" },
			"zero byte":           func(c *container.Container) { c.Args, c.ShellCommand = nil, "true\x00" },
			"takes at most 131071": func(c *container.Container) {
				c.Args, c.ShellCommand = nil, "true "+strings.Repeat("x", 200<<10)
			},
			"nosuch": func(c *container.Container) { c.SIF, c.PinnedReference = dir+"/nosuch.sif", "localhost/nosuch:1" },
		} {
			t.Run(want, func(t *testing.T) {
				t.Parallel()
				c := image
				change(&c)
				if answer := w.start(t, c).wait(); !strings.Contains(answer.Error, want) || strings.Contains(answer.Error, "\n") {
					t.Errorf("%+v, want one sentence with %q", answer, want)
				}
			})
		}
		if !w.hasStore() {
			c := image
			c.SIF = "/etc/passwd"
			if answer := w.start(t, c).wait(); !strings.Contains(answer.Error, "read SIF /etc/passwd") {
				t.Errorf("not a SIF: %+v", answer)
			}
		}
	})
}

// The container's processes may be waited for in any order.
func TestFidelityExitStatusIsKeptHoweverQuickTheEnd(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		c := w.shellImage(t)
		c.ShellCommand = "exit 7"
		for i := range 16 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				if answer := w.start(t, c).wait(); answer.Error != "" || answer.Exit.Code != 7 {
					t.Errorf("%+v, want 7", answer)
				}
			})
		}
	})
}
