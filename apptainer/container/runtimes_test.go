package container_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/container/engine"
	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// testRuntime is one of the runtimes, for the process that uses it. The zero value is the built-in
// one.
type testRuntime struct {
	Apptainer *apptainerexec.Runtime
	Engine    *engine.Runtime
	Pods      *pods.Runtime
	Runner    *runner.Runner
	// Kept is set for a built-in runtime that has run another container of the image with the same init.
	Kept bool

	oneID         bool   // the user has no subordinate ids
	bubblewrap    bool   // it sets the containers up, as on Linux before 5.12
	compression   string // of its SIFs; empty is the default
	singularityCE bool
}

func (w testRuntime) runtime() container.Runtime {
	switch {
	case w.Apptainer != nil:
		return *w.Apptainer
	case w.Engine != nil:
		return *w.Engine
	case w.Pods != nil:
		return *w.Pods
	case w.Runner != nil:
		return *w.Runner
	case w.Kept:
		return secondOfPlace{}
	}
	return builtin.Runtime{}
}

// onEachRuntime runs a test of the fidelity suite on each runtime, and skips those that this machine
// does not have.
func onEachRuntime(t *testing.T, test func(t *testing.T, w testRuntime)) {
	t.Helper()
	for name, find := range map[string]func(testing.TB) testRuntime{
		"builtin":        rangedRuntime,
		"builtin-one-id": func(tb testing.TB) testRuntime { testenv.Containers(tb); return testRuntime{oneID: true} },
		"builtin-bubblewrap": func(tb testing.TB) testRuntime {
			testenv.Containers(tb)
			return testRuntime{oneID: true, bubblewrap: true}
		},
		"builtin-kept": func(tb testing.TB) testRuntime { w := rangedRuntime(tb); w.Kept = true; return w },
		"apptainer":    apptainerRuntime,
		"apptainer-plain": func(tb testing.TB) testRuntime {
			w := plainRuntime(tb)
			if w.singularityCE {
				tb.Skip("needs Apptainer, and $CLTEST_APPTAINER is SingularityCE")
			}
			return w
		},
		"singularity-plain": func(tb testing.TB) testRuntime {
			w := plainRuntime(tb)
			if !w.singularityCE || !w.hasPrivileges() {
				tb.Skip("needs SingularityCE, installed setuid, at $CLTEST_APPTAINER")
			}
			return w
		},
		"docker":     dockerRuntime,
		"podman":     podmanRuntime,
		"kubernetes": podsRuntime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := find(t)
			t.Cleanup(func() { checkListed(t, w.way()) })
			test(t, w)
		})
	}
}

// checkListed compares a test of the fidelity suite with package walls: a test that was skipped although the machine
// has the runtime is a difference of the runtime, and has to be listed as one. Apptainer and SingularityCE differ if
// they are installed setuid.
func checkListed(t *testing.T, way walls.Way) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if !strings.HasPrefix(test, "TestFidelity") || t.Failed() {
		return
	}
	all := walls.Behaviours()
	i := slices.IndexFunc(all, func(b walls.Behaviour) bool { return slices.Contains(b.Tests, test) })
	switch {
	case i < 0:
		t.Errorf("package walls does not list %s", test)
	case t.Skipped() && all[i].Differs[way] == "":
		t.Errorf("it was skipped, and package walls has no difference of %s", way)
	case !t.Skipped() && all[i].Differs[way] != "" && way != walls.Setuid && !all[i].OnSomeOnly:
		t.Errorf("it passes, and package walls has the difference of %s: %s", way, all[i].Differs[way])
	}
}

// rangedRuntime returns the built-in runtime for a user with subordinate ids.
func rangedRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.Containers(tb)
	testenv.SubordinateIDs(tb)
	return testRuntime{}
}

// apptainerRuntime returns the Apptainer of this machine.
func apptainerRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.Containers(tb)
	program, err := exec.LookPath(cmp.Or(os.Getenv("CLTEST_APPTAINER"), "apptainer"))
	if err != nil {
		tb.Skipf("needs Apptainer, on PATH or at $CLTEST_APPTAINER: %v", err)
	}
	output, err := exec.Command(program, "--version").Output()
	must(tb, err)
	return testRuntime{
		Apptainer:     &apptainerexec.Runtime{Program: program, Helper: enter.Path(tb)},
		singularityCE: strings.HasPrefix(string(output), "singularity"),
	}
}

// plainRuntime returns Apptainer or SingularityCE without namespaces made by this program.
func plainRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	w := apptainerRuntime(tb)
	w.Apptainer.Plain = true
	w.compression = w.ownCompression(tb)
	return w
}

// callersUID returns the id of the user who runs the containers.
func (w testRuntime) callersUID(tb testing.TB) int {
	tb.Helper()
	if w.Pods != nil {
		return os.Getuid()
	}
	return ordinaryUID(tb)
}

// hasStore reports whether the runtime has a store of images of its own.
func (w testRuntime) hasStore() bool { return w.Engine != nil || w.Pods != nil }

// hasPrivileges reports whether SingularityCE is installed setuid.
func (w testRuntime) hasPrivileges() bool {
	info, err := os.Stat(filepath.Join(filepath.Dir(w.Apptainer.Program), "../libexec/singularity/bin/starter-suid"))
	return err == nil && info.Mode()&os.ModeSetuid != 0
}

// ownCompression returns a compression that this Apptainer itself supports.
func (w testRuntime) ownCompression(tb testing.TB) string {
	tb.Helper()
	output, err := exec.Command(w.Apptainer.Program, "--version").Output()
	must(tb, err)
	if w.singularityCE || regexp.MustCompile(` 1\.[0-3]\.`).Match(output) {
		return "gzip" // TestCompressionThatApptainerDoesNotKnowIsNamed
	}
	return ""
}

// plain reports whether Apptainer runs without namespaces made by this program.
func (w testRuntime) plain() bool { return w.Apptainer != nil && w.Apptainer.Plain }

// dockerRuntime returns a Docker daemon that admits the ordinary user.
func dockerRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.Containers(tb)
	host, program := docker.Host(tb)
	return testRuntime{Engine: &engine.Runtime{
		Program: program, Helper: enter.Path(tb),
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "DOCKER_HOST=" + host},
	}}
}

// onNodes is the image for all tests on the nodes of Kubernetes, and cluster their namespace. TestMain removes both.
var (
	onNodes kubetest.Shared
	cluster struct {
		once      sync.Once
		namespace string
	}
)

// podsRuntime returns the cluster's nodes, which see this machine's directories. Its caller is root, as the usual worker in
// a pod.
func podsRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.Kubernetes(tb)
	testenv.Root(tb)
	cluster.once.Do(func() { cluster.namespace = kubetest.NewNamespace(tb) })
	if cluster.namespace == "" {
		tb.Fatal("the namespace could not be made: see the first test that needs it")
	}
	settings, err := pods.Find(tb.Context(), kubeclient.Access{Kubeconfig: os.Getenv("KUBECONFIG"), Namespace: cluster.namespace}, "", os.TempDir())
	must(tb, err)
	settings.Mounts = append(settings.Mounts, pods.HostDirectory("/var/tmp"))
	return testRuntime{Pods: &pods.Runtime{Settings: settings, Helper: enter.Path(tb), Silence: 10 * time.Second, Patience: 30 * time.Second}}
}

// docker is Docker's engine. TestMain stops it.
var docker testenv.Docker

// engines records the images that the tests gave to engines. TestMain removes them.
var engines struct {
	mu     sync.Mutex
	images map[string]*engineImage // by program
	podman testRuntime             // of the ordinary user, if a test has started it
	home   string                  // of Podman, with its store
	as     *syscall.Credential     // Podman's user
}

// engineImage is an image that all tests share.
type engineImage struct {
	runtime testRuntime
	as      *syscall.Credential
	once    sync.Once
	name    string
}

// podmanRuntime returns Podman as the ordinary user, with its own store.
func podmanRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.Containers(tb)
	program, err := exec.LookPath("podman")
	if err != nil {
		tb.Skipf("needs Podman: %v", err)
	}
	if _, err := exec.LookPath("newuidmap"); err != nil {
		tb.Skipf("needs newuidmap for Podman: %v", err)
	}
	home := podmanHome(tb)
	e := &engine.Runtime{
		Program: program, Helper: enter.Path(tb), Options: []string{"--cgroup-manager", "cgroupfs"},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "XDG_RUNTIME_DIR=" + home},
	}
	// On a hybrid of cgroups v1 and v2 only runc works, and if root may not raise limits, neither
	// may Podman.
	if runc, err := exec.LookPath("runc"); err == nil {
		e.Options = append(e.Options, "--runtime", runc)
	}
	e.RunOptions = []string{"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"}
	engines.mu.Lock()
	defer engines.mu.Unlock()
	engines.podman = testRuntime{Engine: e}
	return engines.podman
}

// podmanHome returns the ordinary user's directory for Podman.
func podmanHome(tb testing.TB) string {
	tb.Helper()
	engines.mu.Lock()
	defer engines.mu.Unlock()
	if engines.home == "" {
		dir, err := os.MkdirTemp("/var/tmp", "apptainer-test-")
		must(tb, err)
		engines.as = ordinaryUser(tb)
		if engines.as != nil {
			must(tb, os.Chown(dir, int(engines.as.Uid), int(engines.as.Gid)))
		}
		engines.home = dir
	}
	return engines.home
}

// load brings an image into the engine's store.
func (w testRuntime) load(tb testing.TB, config v1.Config, files ...imagetest.File) string {
	tb.Helper()
	return w.loadImage(tb, imagetest.Image(tb, config, imagetest.GzipLayer(tb, imagetest.TarStream(tb, files...))))
}

func (w testRuntime) loadImage(tb testing.TB, image v1.Image) string {
	tb.Helper()
	tag, err := name.NewTag("localhost/cl-slurm-test:" + strings.ToLower(rand.Text()))
	must(tb, err)
	file := filepath.Join(userDir(tb), "image.tar")
	must(tb, tarball.WriteToFile(file, tag, image))
	must(tb, os.Chmod(file, 0o644))
	w.call(tb, "load", "--input", file)
	return tag.String()
}

// call calls the engine as the ordinary user.
func (w testRuntime) call(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := w.output(ordinaryUser(tb), args...)
	must(tb, err)
	return out
}

// output returns the output of a call of the engine.
func (w testRuntime) output(as *syscall.Credential, args ...string) (string, error) {
	cmd := exec.Command(w.Engine.Program, append(append([]string{}, w.Engine.Options...), args...)...)
	cmd.Env, cmd.Dir = w.Engine.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var output bytes.Buffer
	cmd.Stderr = &output
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", args, err, output.String())
	}
	return string(out), nil
}

// enter is a program that begins with runner.Main.
var enter = testenv.Program{Package: "./testdata/enter"}

// image returns an image of these files for this runtime.
func (w testRuntime) image(tb testing.TB, config v1.Config, files ...imagetest.File) container.Container {
	tb.Helper()
	if w.Pods != nil {
		return container.Container{PinnedReference: kubetest.Load(tb, imagetest.Image(tb, config, imagetest.GzipLayer(tb, imagetest.TarStream(tb, files...))))}
	}
	if w.Engine == nil {
		return container.Container{SIF: convert(tb, apptainer.Converter{Compression: w.compression}, config, files...)}
	}
	image := w.load(tb, config, files...)
	tb.Cleanup(func() { w.call(tb, "rmi", "--force", image) })
	return container.Container{PinnedReference: image}
}

// shellImage returns an image with a shell and the usual programs.
func (w testRuntime) shellImage(tb testing.TB) container.Container {
	tb.Helper()
	if w.Pods != nil {
		return container.Container{PinnedReference: onNodes.Name(tb, func() v1.Image {
			return imagetest.Image(tb, shellConfig(), imagetest.GzipLayer(tb, imagetest.TarStream(tb, smallRoot(tb)...)))
		})}
	}
	if w.Engine == nil {
		return container.Container{SIF: compressedShellImage(tb, w.compression)}
	}
	engines.mu.Lock()
	shared := engines.images[w.Engine.Program]
	if shared == nil {
		shared = &engineImage{runtime: w, as: ordinaryUser(tb)}
		if engines.images == nil {
			engines.images = map[string]*engineImage{}
		}
		engines.images[w.Engine.Program] = shared
	}
	engines.mu.Unlock()
	shared.once.Do(func() { shared.name = w.load(tb, shellConfig(), smallRoot(tb)...) })
	if shared.name == "" {
		tb.Fatal("the image could not be loaded: see the first test that needs it")
	}
	return container.Container{PinnedReference: shared.name}
}

func (w testRuntime) start(tb testing.TB, c container.Container) *run {
	tb.Helper()
	if w.oneID { // root of a namespace has no subordinate ids
		req := runRequest{Runtime: w, Container: c}
		if w.bubblewrap {
			req.Forbidden = withoutMountSetattr()
		}
		return startRequestOnHost(tb, "true", req)
	}
	return startRequest(tb, runRequest{Runtime: w, Container: c})
}

// shell runs a command line and wants exit status 0.
func (w testRuntime) shell(tb testing.TB, c container.Container) string {
	tb.Helper()
	r := w.start(tb, c)
	answer := r.wait()
	if answer.Error != "" || answer.Exit.Code != 0 {
		tb.Fatalf("ended with %+v and the output %q", answer, r.output())
	}
	return r.output()
}

// forgetEngines removes the images that engines were given for all tests, and ends Podman.
func forgetEngines() error {
	var errs []error
	for _, image := range engines.images {
		if podman := engines.podman.Engine; podman == nil || image.runtime.Engine.Program != podman.Program {
			_, err := image.runtime.output(image.as, "rmi", "--force", image.name)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, endPodman())...)
}

// endPodman removes Podman's store, whose files belong to other ids than the user's own, and ends the process that keeps
// its user namespace. Every call of Podman starts that process (libpod pkg/rootless: TryJoinPauseProcess).
func endPodman() error {
	if engines.home == "" {
		return nil
	}
	var errs []error
	if engines.podman.Engine != nil {
		for _, args := range [][]string{{"unshare", "rm", "-rf", engines.home + "/.local"}, {"system", "migrate"}} {
			_, err := engines.podman.output(engines.as, args...)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(engines.home))...)
}
