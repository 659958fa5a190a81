package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestContainersOfAPlaceKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	onEachPlace(t, func(t *testing.T, p *place) {
		token, work := newToken(), userDir(t)
		first := container.Container{SIF: image, Env: []string{"KEY=correct-horse", "ONLY=first"}, Masked: []string{"correct-horse"}, ShmBytes: 1 << 20}
		first.Binds = []container.Bind{{Source: work, Target: "/work"}}
		first.Dir = "/made/dir"
		const look = `
echo "process $$ of" /proc/[0-9]*
echo "see" /made* /etc/made* /tmp /tmp/* /dev/shm/* /work
cat /usr/shipped
test -x /bin/true && echo true
env | grep -E '^(KEY|ONLY)'
ls /proc/self/fd
pwd
df -k /dev/shm | grep -o ' [0-9]* ' | head -1
echo error >&2
`
		p.shell(first, `
mkdir -p /tmp; touch /made-by-first /etc/made /tmp/made /dev/shm/made /work/made
echo changed >/usr/shipped; rm /bin/true
(exec setsid sleep `+token+`) &
sleep `+token+` &
while ! grep -q sleep /proc/[0-9]*/comm; do :; done`)
		if left := processesWith(t, token); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		second := container.Container{SIF: image, Env: []string{"KEY=battery"}, ShmBytes: 2 << 20}
		got := p.shell(second, look)
		fresh := startPlace(t, p.cmd.SysProcAttr.Credential, p.cmd.Args...)
		want := fresh.shell(second, look)
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got, "by the image\ntrue\nKEY=battery\n") || strings.Contains(got, "ONLY") {
			t.Errorf("the second container differs from a first one (-first +second):\n%s\nin all: %s", diff, got)
		}
		first.ShellCommand = `echo "$KEY"; echo "$KEY" >&2; exit 3`
		r := p.begin(first)
		if answer := p.end(); answer.Error != "" || answer.Exit.Code != 3 || r.output() != "***\n***\n" {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		if got := p.shell(container.Container{SIF: image}, `echo correct-horse; test -e /work && echo work`+"\ntrue"); got != "correct-horse\n" {
			t.Errorf("the third container says %q", got)
		}
	})
}

// The filter for keys and the keyring belong to a thread of the init.
func TestLaterContainersOfAPlaceHaveNoKeys(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	program, err := os.ReadFile(keys.Path(t))
	must(t, err)
	image := container.Container{SIF: sif(t, shellConfig(), append(smallRoot(t), imagetest.Executable("bin/keys", string(program)))...)}
	onEachPlace(t, func(t *testing.T, p *place) {
		for range 3 {
			areRefused(t, strings.Split(strings.TrimSpace(p.shell(image, "keys try of-the-account")), "\n"))
		}
	})
}

// The init has less exact timers than its containers.
func TestCommandOfAPlaceHasTheTimersOfItsCaller(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		slack := func(pid int) string {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid))
			must(t, err)
			return string(text)
		}
		for range 2 {
			if got, want := p.shell(image, "cat /proc/self/timerslack_ns"), slack(p.cmd.Process.Pid); got != want {
				t.Errorf("the command's timer slack is %q, and its caller's %q", got, want)
			}
		}
		init, squashfuse := p.server()
		if got := slack(init.pid); got != "1000000\n" {
			t.Errorf("the init's timer slack is %q", got)
		}
		if got, want := slack(squashfuse.pid), slack(p.cmd.Process.Pid); got != want {
			t.Errorf("squashfuse's timer slack is %q, and its caller's %q", got, want)
		}
	})
}

// The first process of a container is a copy of the init, which has run others.
func TestContainersOfAPlaceCannotLookIntoTheirFirstProcess(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	onEachPlace(t, func(t *testing.T, p *place) {
		p.shell(container.Container{SIF: image, Env: []string{"KEY=correct-horse"}}, "true")
		got := p.shell(container.Container{SIF: image}, `
grep -a "^[1-9]" /proc/self/environ /proc/self/auxv /proc/self/maps >/dev/null && echo own
for file in mem maps smaps pagemap environ auxv fd/0 fd/1 fd/2 fd/3 root/etc cwd/etc; do
	if (: <"/proc/1/$file") 2>/dev/null; then echo "opened $file"; fi
	if (echo >>"/proc/1/$file") 2>/dev/null; then echo "wrote $file"; fi
done
cat /proc/1/comm; ls /proc/1/fd`)
		if got != "own\ncl-first\n0\n1\n2\n3\n" {
			t.Errorf("the container says %q", got)
		}
	})
}

// A container does what it does on an older kernel, where bubblewrap starts the command.
func TestCommandStartsAsThatOfBubblewrap(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	w := rangedRuntime(t)
	c := w.image(t, shellConfig(), append(smallRoot(t), imagetest.Executable("script", "echo \"$0 $*\"\n"))...)
	c.Env, c.Dir = []string{"PATH=/:/usr/../bin", "PWD=/elsewhere", "A=b"}, "/usr"
	for _, args := range [][]string{{"env"}, {"/script", "x"}, {"script"}, {"./no-such"}, {"no-such"}, {""}, {"/etc"}} {
		c.Args = args
		var printed [2]string
		for i, kernel := range []forbidden{withoutMountSetattr(), {}} {
			r := startRequest(t, runRequest{Runtime: w, Container: c, Forbidden: kernel})
			answer := r.wait()
			printed[i] = fmt.Sprintln("status", answer.Exit.Code, answer.Error)
			if answer.Exit.Code == 0 { // their messages differ
				lines := strings.Split(r.output(), "\n")
				slices.Sort(lines)
				printed[i] += strings.Join(lines, "\n")
			}
		}
		if diff := cmp.Diff(printed[0], printed[1]); diff != "" {
			t.Errorf("%q (-bubblewrap +first process):\n%s", args, diff)
		}
	}
}

// A command may send its own process group any signal.
func TestCommandThatSignalsItsGroupLeavesNothing(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		token := newToken()
		if got := p.shell(image, "trap '' USR1; kill -USR1 0; setsid sleep "+token+" & echo done"); got != "done\n" {
			t.Errorf("output %q", got)
		}
		if left := processesWith(t, token); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
}

// A stop may come after OnStart, and before the command.
func TestEarlyStopEndsTheContainer(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), ShellCommand: "while :; do sleep 0.01; done", KillGrace: time.Minute}
	onEachPlace(t, func(t *testing.T, p *place) {
		for range 10 {
			r := p.begin(c)
			testenv.AwaitFile(t, r.req.StdoutPath+startedSuffix)
			p.order(placeOrder{Stop: true})
			if answer := p.end(); answer.Exit.Code != 128+int(syscall.SIGTERM) {
				t.Errorf("%+v", answer)
			}
		}
	})
}

// The first container of an init may fail for a reason of its own.
func TestPlaceTriesItsInitTwice(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		fails := image
		missing := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid) // for an init, which has a /proc of its own
		fails.Args, fails.Binds = []string{"true"}, []container.Bind{{Source: missing, Target: "/status"}}
		fail := func() {
			t.Helper()
			p.begin(fails)
			if answer := p.end(); answer.Fault == "" {
				t.Errorf("%+v, want a fault", answer)
			}
		}
		keeps := func() bool {
			p.shell(image, "true")
			return slices.ContainsFunc((&run{t: t, cmd: p.cmd}).processes(), func(p process) bool { return p.name == "squashfuse_ll" })
		}
		for range 2 {
			fail()
			if !keeps() {
				t.Error("no init is kept after one failure")
			}
			p.close()
		}
		fail()
		fail()
		if keeps() {
			t.Error("an init is kept after two failures")
		}
	})
}

func TestContainersOfAnImageHaveOneInit(t *testing.T) {
	t.Parallel()
	image, other := shellImage(t), compressedShellImage(t, "gzip")
	onEachPlace(t, func(t *testing.T, p *place) {
		p.shell(container.Container{SIF: image}, "true")
		init, squashfuse := p.server()
		files := func() string {
			entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", init.pid))
			return fmt.Sprint(len(entries))
		}
		before := files()
		for _, command := range []string{"true", "exit 7", "kill -KILL $$", "setsid sleep 1000 &", "no-such-program"} {
			p.begin(container.Container{SIF: image, ShellCommand: command})
			if answer := p.end(); answer.Error != "" {
				t.Errorf("%s: %+v", command, answer)
			}
			if i, s := p.server(); i != init || s != squashfuse {
				t.Errorf("%s: the init was %v with %v, and is %v with %v", command, init, squashfuse, i, s)
			}
		}
		testenv.Await(t, "the init has as many open files as after its first container", func() bool { return files() == before }, files, before)

		p.shell(container.Container{SIF: other}, "true")
		if i, s := p.server(); i == init || s == squashfuse {
			t.Errorf("another image has the init %v with %v", i, s)
		}
	})
}

// Places side by side have one squashfuse for an image, until the last of them has another image or is closed.
func TestPlacesMountAnImageOnce(t *testing.T) {
	t.Parallel()
	image, other := container.Container{SIF: shellImage(t)}, container.Container{SIF: compressedShellImage(t, "gzip")}
	onEachPlace(t, func(t *testing.T, p *place) {
		second := *p
		second.second = true
		both := []*place{p, &second}
		servers := func() []process {
			return slices.DeleteFunc((&run{t: t, cmd: p.cmd}).processes(), func(p process) bool { return p.name != "squashfuse_ll" })
		}
		use := func(want int, c container.Container, places ...*place) {
			t.Helper()
			for _, each := range places {
				if got := each.shell(c, "cat /usr/shipped; ulimit -n; echo changed >/usr/shipped"); !strings.HasPrefix(got, "by the image\n") {
					t.Errorf("output %q", got)
				}
			}
			if n := len(servers()); n != want {
				t.Errorf("%d processes of squashfuse, want %d", n, want)
			}
		}
		use(1, image, both...)
		use(1, image, both...)
		use(2, other, p)
		use(1, other, &second)
		p.close()
		use(1, other, &second)
		use(2, image, p)
		use(1, image, &second)

		must(t, syscall.Kill(servers()[0].pid, syscall.SIGKILL))
		use(1, image, p, p, p, &second, &second, &second)
		p.close()
		second.close()
		use(0, image)
	})
}

// The start of a forwarder takes longer than a small command runs. After its end the next container has another network.
func TestContainersOfAPlaceHaveOnePrivateNetwork(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	image := container.Container{SIF: shellImage(t), Network: container.PrivateNetwork}
	const look = "grep -o tap0: /proc/net/dev; ls -l /proc/self/ns/net | grep -o 'net:.*'"
	isForwarder := func(p process) bool {
		return strings.HasPrefix(p.name, "pasta") || strings.HasPrefix(p.name, "slirp4netns")
	}
	onEachPlace(t, func(t *testing.T, p *place) {
		first := p.shell(image, "setsid sleep 1000 & "+look)
		if second := p.shell(image, look); second != first || !strings.HasPrefix(first, "tap0:\n") {
			t.Errorf("the networks are %q and %q", first, second)
		}
		if without := p.shell(container.Container{SIF: image.SIF}, look); !strings.HasPrefix(without, "net:") { // the kernel may use a number again
			t.Errorf("a container without a network has %q", without)
		}
		p.shell(image, "true")
		forwarders := func() []process {
			return slices.DeleteFunc((&run{t: t, cmd: p.cmd}).processes(), func(p process) bool { return !isForwarder(p) })
		}
		if n := len(forwarders()); n != 1 {
			t.Fatalf("%d forwarders", n)
		}
		must(t, syscall.Kill(forwarders()[0].pid, syscall.SIGKILL))
		testenv.Await(t, "the forwarder has ended", func() bool { return len(forwarders()) == 0 })
		if again := p.shell(image, look); !strings.HasPrefix(again, "tap0:\n") {
			t.Errorf("after the forwarder's end the network is %q", again)
		}
	})
}

// A memory hog may make the kernel kill these.
func TestPlaceOutlivesItsInit(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		for _, victim := range []string{"init", "squashfuse"} {
			kill := func() {
				init, squashfuse := p.server()
				must(t, syscall.Kill(map[string]int{"init": init.pid, "squashfuse": squashfuse.pid}[victim], syscall.SIGKILL))
			}
			p.shell(image, "true")
			kill()
			p.shell(image, "cat /usr/shipped") // while the init ends, or afterwards
			p.shell(image, "cat /usr/shipped")

			token := newToken()
			c := image
			c.ShellCommand = "echo x >/made; setsid sleep " + token + " & echo begun; sleep " + token
			r := p.begin(c)
			r.awaitBegun()
			kill()
			if answer := p.end(); answer.Error == "" || answer.Fault != "" {
				t.Errorf("%s was killed: %+v, want an error of a command that may have begun", victim, answer)
			}
			testenv.Await(t, "no process is left", func() bool { return len(processesWith(t, token)) == 0 })
			if left, err := filepath.Glob(filepath.Join(p.dir, "kept-*/written/upper/made")); err != nil || len(left) > 0 {
				t.Errorf("%s was killed: the command's files are not in the container's directory: %v, %v", victim, left, err)
			}
			p.shell(image, "cat /usr/shipped")
			p.server()
		}
	})
}

func TestStopOfAContainerIsNotThatOfTheNext(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		work := userDir(t)
		c := image
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = "trap 'echo told; exit 3' TERM; echo begun; while ! test -e /work/go; do sleep 0.01; done; sleep 0; echo went"
		for number := range uint64(3) {
			r := p.begin(c)
			r.awaitBegun()
			p.order(placeOrder{Stop: true})
			if answer := p.end(); answer.Error != "" || answer.Exit.Code != 3 || !strings.HasSuffix(r.output(), "told\n") {
				t.Errorf("stopped: %+v, output %q", answer, r.output())
			}
			p.order(placeOrder{Stop: true})
			p.stopLate(number + 1)
		}
		init, _ := p.server()
		r := p.begin(c)
		r.awaitBegun()
		for _, number := range []uint64{1, 3, 5} {
			p.stopLate(number)
		}
		must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o644))
		if answer := p.end(); answer.Error != "" || answer.Exit.Code != 0 || r.output() != "begun\nwent\n" {
			t.Errorf("after requests to stop others: %+v, output %q", answer, r.output())
		}
		p.shell(image, "true")
		if i, _ := p.server(); i != init {
			t.Errorf("the init was %v, and is %v", init, i)
		}
	})
}

func TestClosedPlaceLeavesNoProcessAndNoMount(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		p.close() // before its first container
		for range 2 {
			for range 2 {
				p.shell(image, "setsid sleep 1000 & touch /made /dev/shm/made")
			}
			init, _ := p.server()
			inits, err := filepath.Glob(filepath.Join(p.dir, "kept-*")) // those that were closed, too
			must(t, err)
			isMounted := func(name string) bool {
				return slices.ContainsFunc(inits, func(dir string) bool {
					return mountedIn(t, fmt.Sprintf("/proc/%d/task/*/mountinfo", init.pid), filepath.Join(dir, name)+" ")
				})
			}
			if !isMounted("lower") {
				t.Error("the init has not mounted the image")
			}
			testenv.Await(t, "no thread of the init has mounts of a container", func() bool { return !isMounted("root/dev") })
			p.close()
			all := (&run{t: t, cmd: p.cmd}).processes()
			if len(all) > 0 || mounted(t, p.dir) {
				t.Errorf("left: %v, mounted %v", all, mounted(t, p.dir))
			}
		}
	})
}

func TestUseOfAContainerHasNothingOfEarlierOnes(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		// Every process of the first uses time and memory: one that ends before the command, one that the command waits
		// for, and one that is killed at its end.
		const burn = `x=0123456789; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do x=$x$x; done; test ${#x} -gt 9000000`
		for range 2 {
			c := image
			c.ShellCommand = "(" + burn + ") & wait; setsid sh -c '" + burn + "; : >/done; sleep 1000' & while ! test -e /done; do sleep 0.01; done; " + burn
			p.begin(c)
			large := p.end()
			c.ShellCommand = "true"
			p.begin(c)
			small := p.end()
			if large.Error != "" || small.Error != "" || large.Exit.Code != 0 {
				t.Fatalf("%+v and %+v", large, small)
			}
			if u := large.Exit.Usage; u.MemoryPeak < 9<<20 || u.User+u.System <= 0 {
				t.Errorf("the large one used %+v", u)
			}
			if u := small.Exit.Usage; u.MemoryPeak <= 0 || u.MemoryPeak >= large.Exit.Usage.MemoryPeak-4<<20 || u.User+u.System >= large.Exit.Usage.User+large.Exit.Usage.System {
				t.Errorf("the small one used %+v, after %+v", u, large.Exit.Usage)
			}
		}
	})
}

// An init that is kept unpacks no image.
func TestPlaceUnpacksAnImageThatCannotBeMounted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	image := container.Container{SIF: shellImage(t)}
	for name, preparation := range map[string]string{"squashfuse fails": brokenServer, "no /dev/fuse": fuseNotOurs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPlaceOnHost(t, preparation)
			for range 3 {
				wantUnpacked(t, p, image)
			}
		})
	}
	t.Run("no overlay over the scratch", func(t *testing.T) {
		t.Parallel()
		scratch := userDir(t)
		p := startPlaceOnHost(t, overlayOn+scratch)
		p.dir = scratch
		for range 3 {
			wantUnpacked(t, p, image)
		}
	})
}

// wantUnpacked runs a container that has to unpack its image.
func wantUnpacked(t *testing.T, p *place, c container.Container) {
	t.Helper()
	c.ShellCommand = "cat /usr/shipped; touch /made"
	r := p.begin(c)
	if answer := p.end(); answer.Error != "" || answer.Exit.Code != 0 || !answer.Unpacked || !strings.HasPrefix(answer.Exit.Note, unpackedForThis) || r.output() != "by the image\n" {
		t.Errorf("%+v, output %q", answer, r.output())
	}
}
