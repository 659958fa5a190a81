package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

// instanceRuntime writes the runtime that docs/aws-batch.md gives to the Docker of instances, and returns its path.
func instanceRuntime(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil || os.Getenv("CLTEST_DOCKER_HOST") != "" {
		t.Skip("needs python3, and an engine of its own")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws-batch.md"))
	must(t, err)
	script := regexp.MustCompile(`(?s)runc-codalab <<'END'\n(.*?\n)END\n`).FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/aws-batch.md has no runtime")
	}
	path := filepath.Join(t.TempDir(), "runc-codalab")
	testenv.WriteProgram(t, path, script[1])
	return path
}

// importWorkers makes an image with the programs that a worker needs. changes are further lines of a Dockerfile.
func importWorkers(t *testing.T, host, client, name string, changes ...string) {
	t.Helper()
	programs := []string{"sh", "bwrap", "squashfuse_ll", "unsquashfs", "mksquashfs"}
	libraries, err := filepath.Glob("/lib/*/libgcc_s.so.1") // mksquashfs opens it when it ends a thread
	must(t, err)
	var layer bytes.Buffer
	must(t, writeLayer(&layer, append(programs, libraries...)...))
	args := []string{"import", "--change", "ENV PATH=/bin"}
	for _, line := range changes {
		args = append(args, "--change", line)
	}
	load := exec.Command(client, append(args, "-", name)...)
	load.Env, load.Stdin = append(os.Environ(), "DOCKER_HOST="+host), &layer
	if said, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, said)
	}
}

// TestLaunchTemplateOfThePageLetsWorkersRunContainers asks cl-worker in containers of Docker: in one as ECS makes it, in one
// without a filter of system calls, and in one of the runtime that docs/aws-batch.md gives to instances.
func TestLaunchTemplateOfThePageLetsWorkersRunContainers(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	runtime := instanceRuntime(t)
	engine := testenv.Docker{Settings: fmt.Sprintf(`{"runtimes": {"codalab": {"path": %q}}}`, runtime)}
	host, client := engine.Host(t)
	t.Cleanup(func() { must(t, engine.Remove()) })
	importWorkers(t, host, client, "worker:1")
	probe := func(args ...string) string {
		words := append([]string{"run", "--rm", "--network=host", "--device=/dev/fuse", "--tmpfs=/tmp:exec", "-v", shipped.Path(t) + ":/bin/cl-worker:ro"}, args...)
		cmd := exec.Command(client, append(words, "worker:1", "cl-worker", "probe")...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+host)
		said, _ := cmd.CombinedOutput() // a probe that finds no way fails
		return string(said)
	}
	for want, args := range map[string][]string{
		`(?m)^this node can run no container: .*(make|forbids) user namespaces: `:         nil,
		`(?m)^this node can run no container: .*does not let user namespaces mount /proc`: {"--security-opt=seccomp=unconfined"},
		`(?m)^builtin: `: {"--runtime=codalab", "--env=CL_WORKER_MAX_CPUS=1"},
		// A container of somebody else's keeps its walls.
		`(?m)^this node can run no container: .*user namespaces: `: {"--runtime=codalab", "--env=MAX_CPUS=1"},
	} {
		if said := probe(args...); !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%v: the probe says, and not %s:\n%s", args, want, said)
		}
	}
}

// awsSite is a server, an AWS Batch whose jobs are containers of an engine that is set up as an instance of
// docs/aws-batch.md, and the command line of a manager.
type awsSite struct {
	*awstest.Moto
	t     *testing.T
	moto  *testenv.Moto
	api   *client.Client
	image string // for bundles
	args  []string
}

// newAWSSite starts a site. prepare makes the workers' image lab/cl-worker:1 in its engine.
func newAWSSite(t *testing.T, prepare func(s *awsSite)) *awsSite {
	t.Helper()
	testenv.Containers(t)
	testenv.Root(t)
	s := &awsSite{t: t, moto: &testenv.Moto{Docker: testenv.Docker{
		Settings: fmt.Sprintf(`{"default-runtime": "codalab", "runtimes": {"codalab": {"path": %q}}}`, instanceRuntime(t)),
	}}}
	t.Cleanup(func() { must(t, s.moto.Remove()) })
	s.Moto = awstest.NewMoto(t, s.moto, answering.Path(t), "codalab-batch-cpu")
	must(t, os.Mkdir(s.shared(), 0o755))
	prepare(s)
	address := startTestServer(t, filepath.Join(s.Dir, "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	s.api, s.image = api, imagetest.Start(t).Push(t, "lab/tools:1", scriptImage(t))
	s.args = []string{
		"--server", address, "--min-workers", "0", "--max-workers", "8", "--worker-image", "lab/cl-worker:1",
		"--worker-fetch-private", "127.0.0.1", "--worker-idle-seconds", "5", "--worker-exit-after-num-runs", "1",
		"--worker-work-dir-prefix", s.Dir, "aws-batch",
	}
	return s
}

// shared is the directory of the instance that the workers share.
func (s *awsSite) shared() string { return filepath.Join(s.Dir, "cl_worker_codalab_work_dir") }

func (s *awsSite) manager(words ...string) *exec.Cmd {
	s.t.Helper()
	c := exec.Command(managing.Path(s.t), append(s.args[:len(s.args):len(s.args)], words...)...)
	c.Env = append(os.Environ(), "CODALAB_USERNAME=ann", "CODALAB_PASSWORD="+scriptPassword,
		"AWS_ENDPOINT_URL="+s.URL, "AWS_ACCESS_KEY_ID=AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY=example")
	return c
}

// call runs one command, and returns its output.
func (s *awsSite) call(words ...string) string {
	s.t.Helper()
	out, err := s.manager(words...).CombinedOutput()
	s.t.Logf("$ cl-worker-manager … aws-batch %s\n%s", strings.Join(words, " "), out)
	if err != nil {
		s.t.Errorf("%q: %v", words, err)
	}
	return string(out)
}

// manage runs the manager until end is called, which returns the manager's log.
func (s *awsSite) manage() (end func() string) {
	s.t.Helper()
	return runManager(s.t, s.manager(), "cl-worker-manager … aws-batch")
}

// await waits until a bundle's state holds.
func (s *awsSite) await(uuid, what string, holds func(b client.BundleInfo) bool) client.BundleInfo {
	s.t.Helper()
	return awaitBundle(s.t, s.api, uuid, what, holds)
}

// awaitReady waits for the ends of runs, which must be ready.
func (s *awsSite) awaitReady(uuids []string) (remotes map[string]bool) {
	s.t.Helper()
	remotes = map[string]bool{}
	for _, uuid := range uuids {
		b := s.await(uuid, "the run has ended", func(b client.BundleInfo) bool { return b.State.Final() })
		if b.State != codalab.StateReady {
			s.t.Errorf("the run is %s: %v", b.State, b.Metadata)
		}
		remotes[b.Metadata.String("remote")] = true
	}
	return remotes
}

// awaitNoWorkers waits until status shows none.
func (s *awsSite) awaitNoWorkers() {
	s.t.Helper()
	var status string
	testenv.Await(s.t, "all workers have ended", func() bool {
		out, err := s.manager("status").CombinedOutput()
		must(s.t, err)
		status = string(out)
		return strings.Contains(status, "no workers")
	}, &status)
	s.call("status")
}

// awsRuns is the number of runs, and so of workers, of the test.
const awsRuns = 3

// TestWorkersInJobsOfAWSBatchRunBundles is the whole way: cl-worker-manager aws-batch starts a worker for each of some runs.
// Each worker is cl-worker in a container, with no login but its token. It runs its bundle in the built-in runtime. Then
// no worker is left.
func TestWorkersInJobsOfAWSBatchRunBundles(t *testing.T) {
	t.Parallel()
	s := newAWSSite(t, func(s *awsSite) {
		host, docker := s.moto.Docker.Host(t)
		importWorkers(t, host, docker, "lab/cl-worker:1", `ENTRYPOINT ["/work/cl-worker"]`) // as "make worker-image" makes it
		worker, err := os.ReadFile(shipped.Path(t))
		must(t, err)
		testenv.WriteProgram(t, filepath.Join(s.shared(), "cl-worker"), worker)
	})
	s.call("--check")
	var uuids []string
	for range awsRuns {
		uuids = append(uuids, createRun(t, s.api, s.image))
	}
	end := s.manage()
	if remotes := s.awaitReady(uuids); len(remotes) != awsRuns {
		t.Errorf("the runs were in %v", remotes)
	}
	s.awaitNoWorkers()
	if out := s.call("logs", uuids[0]); !strings.Contains(out, "Worker started!") || !strings.Contains(out, uuids[0]) {
		t.Errorf("the log of the worker is %s", out)
	}
	log := end()
	if n := strings.Count(log, "started a worker"); n != awsRuns || strings.Contains(log, scriptPassword) {
		t.Errorf("%d workers were started: %s", n, log)
	}
}
