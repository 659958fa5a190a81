package apptainer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer"
)

// needContainers skips a test where the programs that it needs are missing,
// unless CLTEST_REQUIRE says that they must be there.
func needContainers(t testing.TB) {
	t.Helper()
	for _, program := range []string{"mksquashfs", "squashfuse_ll", "bwrap", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			if slices.Contains(strings.Split(os.Getenv("CLTEST_REQUIRE"), ","), "containers") {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// ordinaryUser is whom containers are run as when the tests are root's.
func ordinaryUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"researcher", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("no ordinary user")
	return nil
}

// userDir is a directory of the ordinary user's own. Those of testing may
// stand where only root comes.
func userDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apptainer-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if cred := ordinaryUser(t); cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// busyboxLayer is a small root: /bin/sh and the usual programs.
func busyboxLayer(t testing.TB) []file {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := []file{directory("bin"), executable("bin/busybox", string(content)), directory("etc"), directory("usr")}
	out, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			files = append(files, symlink("bin/"+applet, "busybox"))
		}
	}
	return append(files,
		regular("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
		regular("usr/shipped", "by the image\n"),
		symlink("etc/resolv.conf", "../run/resolve/stub-resolv.conf"))
}

// sif converts an image of the given files, for containers to run.
func sif(t testing.TB, config v1.Config, files ...file) string {
	t.Helper()
	needContainers(t)
	reg := startRegistry(t)
	img := resolve(t, reg.push(t, "test/image", image(t, config, gzipLayer(t, tarStream(t, files...)))))
	path := filepath.Join(userDir(t), "image.sif")
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), img, path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func busybox(t testing.TB) string {
	t.Helper()
	return sif(t, v1.Config{Env: []string{"PATH=/bin", `QUOTED=it's "$HOME"`}}, busyboxLayer(t)...)
}

// run is a container run by an ordinary user.
type run struct {
	t      testing.TB
	cmd    *exec.Cmd
	req    runRequest
	answer bytes.Buffer
}

func start(t testing.TB, c apptainer.Container) *run {
	t.Helper()
	if c.Scratch == "" {
		c.Scratch = userDir(t)
	}
	r := &run{t: t, req: runRequest{Container: c, Grace: c.Grace, StdoutPath: filepath.Join(userDir(t), "out")}}
	request, err := json.Marshal(r.req)
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command("/proc/self/exe", runAsUser)
	r.cmd.Env = []string{"PATH=/usr/bin:/bin", "SECRET=of the host"}
	r.cmd.Stdin = bytes.NewReader(request)
	r.cmd.Stdout, r.cmd.Stderr = &r.answer, os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(t)}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// output is what the command has written so far.
func (r *run) output() string {
	out, err := os.ReadFile(r.req.StdoutPath)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(out)
}

// await polls until the output holds text.
func (r *run) await(text string) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(r.output(), text) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%q never appeared in the output %q", text, r.output())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wait returns how it ended.
func (r *run) wait() runAnswer {
	r.t.Helper()
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatal(err)
	}
	var answer runAnswer
	if err := json.Unmarshal(r.answer.Bytes(), &answer); err != nil {
		r.t.Fatalf("%v in %q", err, r.answer.String())
	}
	left, err := os.ReadDir(r.req.Container.Scratch)
	if err != nil || len(left) > 0 {
		r.t.Errorf("left in the scratch directory: %v, %v", left, err)
	}
	return answer
}

// shell runs a command line and wants exit status 0.
func shell(t testing.TB, c apptainer.Container) string {
	t.Helper()
	r := start(t, c)
	answer := r.wait()
	if answer.Error != "" || answer.Exit.Code != 0 {
		t.Fatalf("ended with %+v and the output %q", answer, r.output())
	}
	return r.output()
}

func TestCommandIsRootOverAWritableRoot(t *testing.T) {
	t.Parallel()
	c := apptainer.Container{SIF: busybox(t), ShellCommand: `
set -e
id -u; id -g
touch /made /etc/made /usr/made /tmp/made /root/made
echo changed >>/usr/shipped; cat /usr/shipped
rm /usr/shipped /etc/passwd
mv /etc /etc2; mkdir /etc; rm -r /etc2
stat -c %u:%g:%a /tmp /bin/busybox
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
	got := shell(t, apptainer.Container{
		SIF:  busybox(t),
		Args: []string{"env"},
		Env:  []string{"HOME=/0x1", "MULTI=a\nb", "LD_PRELOAD=/nowhere.so", "EMPTY="},
	})
	want := []string{"PATH=/bin", `QUOTED=it's "$HOME"`, "HOME=/0x1", "MULTI=a", "b", "LD_PRELOAD=/nowhere.so", "EMPTY=", "PWD=/"}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	slices.Sort(lines)
	slices.Sort(want)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestExitStatusAndSignalAreTheCommands(t *testing.T) {
	t.Parallel()
	image := busybox(t)
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
			r := start(t, apptainer.Container{SIF: image, Args: tt.args})
			answer := r.wait()
			if answer.Error != "" || answer.Exit.Code != tt.code || answer.Exit.Signal != tt.signal {
				t.Errorf("%+v, want exit status %d by signal %d; output %q", answer, tt.code, tt.signal, r.output())
			}
			if answer.Exit.CPU <= 0 {
				t.Error("no processor time")
			}
		})
	}
}

// The container's processes may be waited for in any order.
func TestExitStatusIsKeptHoweverQuickTheEnd(t *testing.T) {
	t.Parallel()
	c := apptainer.Container{SIF: busybox(t), Args: []string{"sh", "-c", "exit 7"}, Scratch: t.TempDir()}
	var group errgroup.Group
	group.SetLimit(4)
	for range 60 {
		group.Go(func() error {
			exit, err := c.Run(t.Context())
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
	got := shell(t, apptainer.Container{
		SIF: busybox(t),
		Dir: "/0xabc",
		Binds: []apptainer.Bind{
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
	info, err := os.Stat(filepath.Join(work, "result"))
	if err != nil {
		t.Fatal(err)
	}
	if cred, stat := ordinaryUser(t), info.Sys().(*syscall.Stat_t); cred != nil && stat.Uid != cred.Uid {
		t.Errorf("the result belongs to %d, want %d", stat.Uid, cred.Uid)
	}
}

func TestDevicesAreThoseAskedForAlone(t *testing.T) {
	t.Parallel()
	image := busybox(t)
	const list = "ls /dev; test -c /dev/fuse && echo there"
	if got := shell(t, apptainer.Container{SIF: image, Devices: []string{"/dev/fuse"}, ShellCommand: list}); !strings.Contains(got, "there") {
		t.Errorf("no /dev/fuse in %q", got)
	}
	got := shell(t, apptainer.Container{SIF: image, ShellCommand: list + "; true"})
	for _, forbidden := range []string{"there", "vda", "kmsg", "mem"} {
		if slices.Contains(strings.Fields(got), forbidden) {
			t.Errorf("%s in %q", forbidden, got)
		}
	}
}

func TestNothingElseOfTheHostIsThere(t *testing.T) {
	t.Parallel()
	got := shell(t, apptainer.Container{SIF: busybox(t), ShellCommand: `
ls /; ls /tmp /run /var/run 2>/dev/null
cat /proc/1/comm
test $(ls /proc | grep -c '^[0-9]') -le 6 && echo few
echo descriptors: $(for f in 3 4 5 6 7 8 9 250 251 252; do test -e /proc/self/fd/$f && echo $f; done)
read line || echo no input
df -k /dev/shm | tail -1`, ShmBytes: 3 << 20})
	flat := strings.Join(strings.Fields(got), " ")
	for _, want := range []string{"bin dev etc home proc root sys tmp usr var /tmp: bwrap few descriptors: no input", " 3072 "} {
		if !strings.Contains(flat, want) {
			t.Errorf("no %q in %q", want, flat)
		}
	}
}

func TestNetworkIsTheHostsOrNone(t *testing.T) {
	t.Parallel()
	image := busybox(t)
	const show = "ls /sys/class/net >/dev/null; cut -s -d: -f1 /proc/net/dev; cat /etc/hosts; ping -c1 -w1 127.0.0.1 >/dev/null && echo loopback"
	none := shell(t, apptainer.Container{SIF: image, ShellCommand: show})
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
	all := shell(t, apptainer.Container{SIF: image, Network: true, ShellCommand: show + "; cat /etc/resolv.conf; echo more >>/etc/hosts"})
	if !strings.Contains(all, string(hosts)) || strings.Count(all, "\n") < strings.Count(string(dev), ":") {
		t.Errorf("with the host's network: %q", all)
	}
}

func TestEndOfContextTerminatesEveryProcess(t *testing.T) {
	t.Parallel()
	work := userDir(t)
	r := start(t, apptainer.Container{
		SIF:   busybox(t),
		Grace: 20 * time.Second,
		Binds: []apptainer.Bind{{Source: work, Target: "/work"}},
		ShellCommand: `
setsid sh -c 'trap "echo daemon saved >/work/daemon; exit" TERM; touch /work/ready; while :; do sleep 0.01; done' &
trap 'echo command saved; exit 3' TERM
while ! test -e /work/ready; do sleep 0.01; done
echo begun
while :; do sleep 0.01; done`,
	})
	r.await("begun")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	answer := r.wait()
	if answer.Error != "" || answer.Exit.Code != 3 || !strings.Contains(r.output(), "command saved\n") {
		t.Errorf("%+v with output %q, want exit status 3 and what it saved", answer, r.output())
	}
	if saved, err := os.ReadFile(filepath.Join(work, "daemon")); err != nil || string(saved) != "daemon saved\n" {
		t.Errorf("the other session's process left %q, %v", saved, err)
	}
}

func TestProcessThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	r := start(t, apptainer.Container{
		SIF:          busybox(t),
		Grace:        50 * time.Millisecond,
		ShellCommand: `trap '' TERM; echo begun; while :; do sleep 0.01; done`,
	})
	r.await("begun")
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 137 || answer.Exit.Signal != 9 {
		t.Errorf("%+v, want killed by 9", answer)
	}
}

func TestBackgroundProcessesEndWithTheCommand(t *testing.T) {
	t.Parallel()
	r := start(t, apptainer.Container{SIF: busybox(t), ShellCommand: "setsid sleep 1000 & sleep 1000 & exit 4"})
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 4 {
		t.Errorf("%+v, want exit status 4", answer)
	}
}

// process is a line of the process table.
type process struct {
	pid, parent int
	name        string
}

func processTable(t testing.TB) (all []process) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		end := bytes.LastIndexByte(stat, ')')
		p := process{name: string(stat[bytes.IndexByte(stat, '(')+1 : end])}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
		p.parent, _ = strconv.Atoi(strings.Fields(string(stat[end+1:]))[1])
		all = append(all, p)
	}
	return all
}

// processes are those of the container, its init first.
func (r *run) processes() (found []process) {
	r.t.Helper()
	parents := []int{r.cmd.Process.Pid}
	table := processTable(r.t)
	for len(parents) > 0 {
		for _, p := range table {
			if p.parent == parents[0] {
				parents = append(parents, p.pid)
				found = append(found, p)
			}
		}
		parents = parents[1:]
	}
	return found
}

// mounted says whether any process has a mount of the directory.
func mounted(t testing.TB, dir string) bool {
	t.Helper()
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(tables, func(name string) bool {
		table, err := os.ReadFile(name)
		return err == nil && bytes.Contains(table, []byte(dir))
	})
}

func TestKillingAnyPartLeavesNoProcessAndNoMount(t *testing.T) {
	t.Parallel()
	image := busybox(t)
	for _, victim := range []string{"caller", "init", "squashfuse_ll"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			scratch := userDir(t)
			r := start(t, apptainer.Container{SIF: image, Scratch: scratch, ShellCommand: "setsid sleep 1000 & echo begun; sleep 1000"})
			r.await("begun")
			parts := r.processes()
			i := slices.IndexFunc(parts, func(p process) bool { return p.name == victim })
			pid := r.cmd.Process.Pid
			switch {
			case victim == "init":
				pid = parts[0].pid
			case i >= 0:
				pid = parts[i].pid
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if victim == "caller" {
				_ = r.cmd.Wait()
			} else if answer := r.wait(); answer.Error == "" {
				t.Errorf("%+v, want an error", answer)
			}
			deadline := time.Now().Add(10 * time.Second)
			gone := func(p process) bool { return !slices.Contains(processTable(t), p) }
			for len(parts) > 0 || mounted(t, scratch) {
				if time.Now().After(deadline) {
					t.Fatalf("left: %v", parts)
				}
				parts = slices.DeleteFunc(parts, gone)
			}
		})
	}
}

// A batch system may send TERM to every process of a job at once.
func TestTermToEveryProcessOfTheJobLosesNoExitStatus(t *testing.T) {
	t.Parallel()
	work := userDir(t)
	r := start(t, apptainer.Container{
		SIF:          busybox(t),
		Binds:        []apptainer.Bind{{Source: work, Target: "/work"}},
		ShellCommand: `trap 'while ! test -e /work/go; do sleep 0.01; done; cat /usr/shipped; exit 5' TERM; echo begun; while :; do sleep 0.01; done`,
	})
	r.await("begun")
	for _, p := range r.processes() {
		if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 5 || !strings.HasSuffix(r.output(), "by the image\n") {
		t.Errorf("%+v with output %q, want exit status 5 and the image still readable", answer, r.output())
	}
}

func TestImageWithoutShellSaysSo(t *testing.T) {
	t.Parallel()
	r := start(t, apptainer.Container{SIF: sif(t, v1.Config{}, regular("data", "no programs here")), ShellCommand: "true"})
	if answer := r.wait(); !answer.NoShell || !strings.Contains(answer.Error, "no shell") {
		t.Errorf("%+v, want ErrNoShell", answer)
	}
}

func TestBashIsPreferred(t *testing.T) {
	t.Parallel()
	files := append(busyboxLayer(t), directory("usr/bin"), executable("usr/bin/mybash", "#!/bin/sh\necho bash \"$@\"\n"), symlink("bin/bash", "/usr/bin/mybash"))
	if got := shell(t, apptainer.Container{SIF: sif(t, v1.Config{Env: []string{"PATH=/bin"}}, files...), ShellCommand: "a 'b  c'"}); got != "bash -c a 'b  c'\n" {
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
	files := slices.DeleteFunc(busyboxLayer(t), func(f file) bool { return f.Name == "etc/resolv.conf" })
	files = append(files,
		symlink("etc/resolv.conf", "/oldroot"+victim+"/resolv.conf"),
		symlink("etc/hosts", victim+"/hosts"),
		symlink("absolute", victim),
		symlink("relative", up+victim[1:]),
		symlink("old", "/oldroot"+victim),
		symlink("loop", "loop"),
		symlink("dev", victim),
		symlink("sys", "/oldroot"+victim))
	got := shell(t, apptainer.Container{
		SIF:     sif(t, v1.Config{Env: []string{"PATH=/bin"}}, files...),
		Network: true,
		Dir:     "/old/made",
		Binds: []apptainer.Bind{
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
	image := busybox(t)
	dir := userDir(t)
	for _, tt := range []struct {
		name string
		c    apptainer.Container
		want string
	}{
		{"no command", apptainer.Container{SIF: image}, "no command"},
		{"no SIF", apptainer.Container{SIF: dir + "/nosuch.sif", Args: []string{"true"}}, "no such file"},
		{"not a SIF", apptainer.Container{SIF: "/etc/passwd", Args: []string{"true"}}, "read SIF /etc/passwd"},
		{"missing source", apptainer.Container{SIF: image, Args: []string{"true"}, Binds: []apptainer.Bind{{Source: dir + "/nosuch", Target: "/x"}}}, "nosuch: no such file"},
		{"relative target", apptainer.Container{SIF: image, Args: []string{"true"}, Binds: []apptainer.Bind{{Source: dir, Target: "x"}}}, `bind target "x" is not an absolute path`},
		{"bind in bind", apptainer.Container{SIF: image, Args: []string{"true"}, Binds: []apptainer.Bind{{Source: dir, Target: "/x"}, {Source: dir, Target: "/x/y"}}}, `"/x/y" lies inside "/x"`},
		{"no device", apptainer.Container{SIF: image, Args: []string{"true"}, Devices: []string{"/etc/passwd"}}, "not a device"},
		{"relative directory", apptainer.Container{SIF: image, Args: []string{"true"}, Dir: "x"}, `"x" is not an absolute path`},
		{"directory is a file", apptainer.Container{SIF: image, Args: []string{"true"}, Dir: "/etc/passwd"}, "working directory: /etc/passwd"},
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
	c := apptainer.Container{SIF: busybox(b), Args: []string{"true"}, Scratch: b.TempDir()}
	for b.Loop() {
		if exit, err := c.Run(b.Context()); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}
