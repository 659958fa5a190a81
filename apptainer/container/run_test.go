package container_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// ordinaryUser runs the containers if the tests run as root.
func ordinaryUser(tb testing.TB) *syscall.Credential {
	tb.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	return testenv.Researcher(tb).Credential
}

// ordinaryUID returns that user's id.
func ordinaryUID(tb testing.TB) int {
	tb.Helper()
	if cred := ordinaryUser(tb); cred != nil {
		return int(cred.Uid)
	}
	return os.Getuid()
}

// userDir returns a directory of the ordinary user, who may be unable to reach those of package
// testing.
func userDir(tb testing.TB) string {
	tb.Helper()
	return userDirIn(tb, "")
}

// userDirIn is userDir in another directory than that for temporary files.
func userDirIn(tb testing.TB, parent string) string {
	tb.Helper()
	dir, err := os.MkdirTemp(parent, "apptainer-test-")
	must(tb, err)
	must(tb, os.Chmod(dir, 0o755))
	emptied(tb, dir)
	if cred := ordinaryUser(tb); cred != nil {
		must(tb, os.Chown(dir, int(cred.Uid), int(cred.Gid)))
	}
	return dir
}

// smallPrograms are the programs of smallRoot besides sh. They come from the host, which may be a pod.
const smallPrograms = "cat chmod chown cut df env false grep id ln ls mkdir mount mv rm setsid sleep stat tail touch true truncate umount"

// smallRoot returns a root with a shell and the usual programs, copied from this machine with their
// libraries.
func smallRoot(tb testing.TB) []imagetest.File {
	tb.Helper()
	others := imagetest.Regular("var/others", "of uid 1234\n")
	others.Uid, others.Gid = 1234, 1234
	files := []imagetest.File{
		imagetest.Directory("bin"), imagetest.Directory("etc"), imagetest.Directory("usr"),
		imagetest.Regular("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
		imagetest.Regular("usr/shipped", "by the image\n"),
		imagetest.Directory("var"), others,
		imagetest.Symlink("etc/resolv.conf", "../run/resolve/stub-resolv.conf"),
	}
	have := map[string]bool{}
	copyIn := func(to, from string) {
		content, err := os.ReadFile(from)
		must(tb, err)
		if !have[to] {
			files = append(files, imagetest.Executable(to, string(content)))
		}
		have[to] = true
	}
	for _, program := range append(strings.Fields(smallPrograms), "sh") {
		path, err := exec.LookPath(program)
		must(tb, err)
		copyIn("bin/"+program, path)
		for _, library := range libraries(tb, path) {
			copyIn(library[1:], library)
		}
	}
	return files
}

// libraries returns the libraries that a program is linked to.
func libraries(tb testing.TB, program string) (files []string) {
	tb.Helper()
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil // it is linked statically
	}
	for _, word := range strings.Fields(string(output)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	return files
}

// sif converts an image of the given files, for containers to run.
func sif(tb testing.TB, config v1.Config, files ...imagetest.File) string {
	tb.Helper()
	return convert(tb, apptainer.Converter{}, config, files...)
}

func convert(tb testing.TB, converter apptainer.Converter, config v1.Config, files ...imagetest.File) string {
	tb.Helper()
	testenv.Containers(tb)
	return convertImage(tb, converter, imagetest.Image(tb, config, imagetest.GzipLayer(tb, imagetest.TarStream(tb, files...))))
}

func convertImage(tb testing.TB, converter apptainer.Converter, image v1.Image) string {
	tb.Helper()
	img := imagetest.Resolve(tb, imagetest.Start(tb).Push(tb, "test/image", image))
	path := filepath.Join(userDir(tb), "image.sif")
	converter.Source = imagetest.Source()
	must(tb, converter.Convert(tb.Context(), img, path, nil))
	return path
}

// sharedImages are made once for all tests, by their compression, and removed by TestMain.
var sharedImages = map[string]*sharedImage{"": {}, "gzip": {}}

type sharedImage struct {
	once sync.Once
	path string
}

// make makes the image once, and ends the tests that need it if that failed.
func (s *sharedImage) make(tb testing.TB, convert func() string) {
	tb.Helper()
	s.once.Do(func() {
		made := convert()
		dir, err := os.MkdirTemp("", "apptainer-test-")
		if err == nil {
			err = errors.Join(os.Chmod(dir, 0o755), os.Link(made, filepath.Join(dir, "image.sif")))
		}
		must(tb, err)
		s.path = filepath.Join(dir, "image.sif")
	})
	if s.path == "" {
		tb.Fatal("the image could not be made: see the first test that needs it")
	}
}

func shellConfig() v1.Config {
	return v1.Config{Env: []string{"PATH=/bin", `QUOTED=it's "$HOME"`}}
}

// shellImage returns an image with a shell and the usual programs.
func shellImage(tb testing.TB) string {
	tb.Helper()
	return compressedShellImage(tb, "")
}

func compressedShellImage(tb testing.TB, compression string) string {
	tb.Helper()
	testenv.Containers(tb)
	shared := sharedImages[compression]
	shared.make(tb, func() string {
		return convert(tb, apptainer.Converter{Compression: compression}, shellConfig(), smallRoot(tb)...)
	})
	return shared.path
}

// run is a container run by an ordinary user.
type run struct {
	t       testing.TB
	runtime testRuntime
	cmd     *exec.Cmd
	req     runRequest
	answer  bytes.Buffer
}

var must = testenv.Must

func start(tb testing.TB, c container.Container) *run {
	tb.Helper()
	return testRuntime{}.start(tb, c)
}

// self is the test binary for programs that startRequest starts.
const self = "/proc/self/fd/3"

// usualProcesses is the MaxProcesses of a container whose test names none: that of a queue. A negative one means no
// limit.
const usualProcesses = 4096

// startRequest makes the ordinary user run a request: with the test binary, or by a command that
// ends in running self with the argument runAsUser.
func startRequest(tb testing.TB, req runRequest, through ...string) *run {
	tb.Helper()
	if req.Container.PrivateDir == "" {
		req.Container.PrivateDir = userDir(tb)
	} else {
		emptied(tb, req.Container.PrivateDir)
	}
	dir := userDir(tb)
	req.StdoutPath = filepath.Join(dir, "out")
	req.Container.MaxProcesses = cmp.Or(req.Container.MaxProcesses, usualProcesses)
	for i := range req.Others {
		o := &req.Others[i]
		o.Container.MaxProcesses = cmp.Or(o.Container.MaxProcesses, usualProcesses)
		o.StdoutPath = filepath.Join(dir, "out"+strconv.Itoa(i+1))
		if o.Container.PrivateDir == "" {
			o.Container.PrivateDir = req.Container.PrivateDir
		}
	}
	r := &run{t: tb, runtime: req.Runtime, req: req}
	request, err := json.Marshal(r.req)
	must(tb, err)
	exe, err := os.Open("/proc/self/exe")
	must(tb, err)
	defer func() { _ = exe.Close() }()
	if through == nil {
		through = []string{"/proc/self/exe", runAsUser}
	}
	r.cmd = exec.Command(through[0], through[1:]...)
	r.cmd.ExtraFiles = []*os.File{exe}
	r.cmd.Env = []string{"PATH=/usr/bin:/bin", "SECRET=of the host"}
	r.cmd.Stdin = bytes.NewReader(request)
	r.cmd.Stdout, r.cmd.Stderr = &r.answer, os.Stderr
	if req.Runtime.Pods == nil { // whose caller is root
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(tb)}
	}
	must(tb, r.cmd.Start())
	tb.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// output returns the command's output so far.
func (r *run) output() string {
	out, err := os.ReadFile(r.req.StdoutPath)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(out)
}

// awaitBegun waits until the command has written "begun".
func (r *run) awaitBegun() {
	r.t.Helper()
	r.awaitOutput("begun")
}

// awaitOutput waits until the command has written a word.
func (r *run) awaitOutput(word string) {
	r.t.Helper()
	testenv.Await(r.t, fmt.Sprintf("the command has written %q", word), func() bool { return strings.Contains(r.output(), word) }, r.output)
}

// wait returns the end of the run.
func (r *run) wait() runAnswer {
	r.t.Helper()
	stuck := time.AfterFunc(testenv.WaitLimit, func() { _ = r.cmd.Process.Signal(syscall.SIGABRT) }) // it prints its goroutines
	defer stuck.Stop()
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatal(err)
	}
	var answer runAnswer
	if err := json.Unmarshal(r.answer.Bytes(), &answer); err != nil {
		r.t.Fatalf("%v in %q", err, r.answer.String())
	}
	return answer
}

// shell runs a command line with the built-in runtime, and wants exit status 0.
func shell(tb testing.TB, c container.Container) string {
	tb.Helper()
	return testRuntime{}.shell(tb, c)
}

// process is a line of the process table.
type process struct {
	pid, parent int
	name        string
}

func processTable(tb testing.TB) (all []process) {
	tb.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(tb, err)
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

// processes returns the processes of the container, its init first.
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

// mounted reports whether any process has a mount of the directory.
func mounted(tb testing.TB, dir string) bool {
	tb.Helper()
	return mountedIn(tb, "/proc/[0-9]*/mountinfo", dir)
}

// mountedIn reports whether a table of mounts has a directory.
func mountedIn(tb testing.TB, pattern, dir string) bool {
	tb.Helper()
	tables, err := filepath.Glob(pattern)
	must(tb, err)
	return slices.ContainsFunc(tables, func(name string) bool {
		table, err := os.ReadFile(name)
		return err == nil && bytes.Contains(table, []byte(dir))
	})
}

// emptied removes a directory at the test's end. Overlays of killed containers leave directories of
// mode 0 there, which package testing would not remove.
func emptied(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := filetree.Remove(dir); err != nil {
			tb.Error(err)
		}
	})
}
