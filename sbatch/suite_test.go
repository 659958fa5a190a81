package sbatch_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

func TestMain(m *testing.M) {
	testenv.Parallel(8) // the tests wait for Slurm
	os.Exit(m.Run())
}

// commands are the methods of a Client that the suite tests.
type commands interface { //nolint:interfacebloat // the suite tests all of them
	Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error)
	Try(ctx context.Context, r sbatch.Request) error
	Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error)
	QueryAccounting(ctx context.Context, since time.Time, which sbatch.Which) ([]sbatch.Job, error)
	Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error
	Describe(ctx context.Context, id sbatch.JobID) (sbatch.Details, error)
	Partitions(ctx context.Context) ([]sbatch.Partition, error)
	Associations(ctx context.Context, user string) ([]sbatch.Association, error)
}

// slurm is a cluster that a test of the suite runs on: the real one of this
// machine, as the user researcher, or one within this process.
type slurm struct {
	commands
	// real is set for the real cluster, inprocess for the other.
	real      *sbatch.Client
	inprocess *slurmtest.Cluster
	// name begins the names of the test's jobs, and of no others.
	name string
	// dir is the test's own directory, which the nodes see.
	dir string
	// killWait is the site's KillWait.
	killWait time.Duration
	// version is the cluster's.
	version slurmtest.Version
}

// onEach runs a test on the real cluster and on those within this process, one for each version of Slurm. The
// test has to pass on all of them.
func onEach(t *testing.T, test func(t *testing.T, s *slurm)) {
	t.Helper()
	onReal(t, test)
	for _, version := range slurmtest.Versions() {
		t.Run("inprocess/"+string(version), func(t *testing.T) {
			t.Parallel()
			site := slurmtest.NewSite()
			site.Slurm = version
			site.StartDelay, site.NameAfter, site.EndAfter = 50*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
			site.KillWait = 300 * time.Millisecond
			k := slurmtest.NewCluster(t, site)
			test(t, &slurm{commands: k, inprocess: k, name: uniqueName(), dir: t.TempDir(), killWait: site.KillWait, version: version})
		})
	}
}

// onReal runs a test on the real cluster alone.
func onReal(t *testing.T, test func(t *testing.T, s *slurm)) {
	t.Helper()
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		cluster := testenv.Slurm(t)
		if os.Geteuid() == 0 {
			serveAdmin(t, cluster)
		}
		if !testenv.AsResearcher(t) {
			return
		}
		c := &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}
		said, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, &slurm{
			commands: c, real: c, name: uniqueName(), dir: os.Getenv("TMPDIR"), killWait: 3 * time.Second, version: slurmtest.VersionOf(said),
		})
	})
}

// either returns the message of Slurm before 24.11, or that of later versions.
func (s *slurm) either(before, since2411 string) string {
	if s.version.Since(slurmtest.Slurm2411) {
		return since2411
	}
	return before
}

func uniqueName() string { return fmt.Sprintf("cltest-%d-%d", os.Getpid(), time.Now().UnixNano()) }

// answer is the output of a command of Slurm, and its exit.
type answer struct {
	Out, Err string
	Exit     int
}

func answerOf(out []byte, err error) answer {
	var failed *command.Error
	if errors.As(err, &failed) {
		return answer{string(out), failed.Stderr, failed.ExitCode}
	}
	return answer{Out: string(out)}
}

// command runs a command of the real Slurm as the test's user.
func (s *slurm) command(t *testing.T, args ...string) answer {
	t.Helper()
	c := command.Command{
		Args: append([]string{filepath.Join(s.real.Bin, args[0])}, args[1:]...),
		Env:  []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "SLURM_CONF=" + s.real.Conf},
	}
	return answerOf(c.Output(t.Context()))
}

// admin runs a command of the real Slurm as root, which has to succeed.
func (s *slurm) admin(t *testing.T, args ...string) string {
	t.Helper()
	a := s.asRoot(t, args...)
	if a.Exit != 0 {
		t.Fatalf("as root: %q: %+v", args, a)
	}
	return a.Out
}

// asRoot runs a command of the real Slurm as root. The process that started this one runs it.
func (s *slurm) asRoot(t *testing.T, args ...string) answer {
	t.Helper()
	conn, err := net.Dial("unix", adminSocket(os.Getppid(), t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // everything was sent
	var a answer
	if err := cmp.Or(json.NewEncoder(conn).Encode(args), json.NewDecoder(conn).Decode(&a)); err != nil {
		t.Fatal(err)
	}
	return a
}

// addPartition makes a partition until the test ends. Options are further
// settings of scontrol, for the real Slurm.
func (s *slurm) addPartition(t *testing.T, p slurmtest.Partition, options ...string) {
	t.Helper()
	if s.real == nil {
		s.inprocess.Do(func(_ time.Time, c *slurmtest.Controller) { c.AddPartition(p) })
		return
	}
	name := "PartitionName=" + p.Name
	s.admin(t, append([]string{"scontrol", "create", name, "Nodes=" + strings.Join(p.Nodes, ","), "State=" + cmp.Or(p.State, "UP")}, options...)...)
	t.Cleanup(func() { s.admin(t, "scontrol", "delete", name) })
}

// setN4 changes the state of node n4.
func (s *slurm) setN4(t *testing.T, state string) {
	t.Helper()
	if s.real != nil {
		s.admin(t, "scontrol", "update", "nodename=n4", "state="+state, "reason=cltest")
		return
	}
	s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) {
		if err := c.SetNode(now, "n4", state); err != nil {
			t.Fatal(err)
		}
	})
}

// requeue requeues a job, or returns why Slurm does not.
func (s *slurm) requeue(t *testing.T, id sbatch.JobID) (refusal string) {
	t.Helper()
	if s.real != nil {
		return strings.TrimSuffix(s.command(t, "scontrol", "requeue", id.String()).Err, " for job "+id.String())
	}
	var err error
	s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) { err = c.Requeue(now, id) })
	var failed *sbatch.Error
	if errors.As(err, &failed) {
		return failed.Message
	}
	return ""
}

// suspend suspends a running job, or resumes it.
func (s *slurm) suspend(t *testing.T, id sbatch.JobID, goOn bool) {
	t.Helper()
	switch {
	case s.real == nil && goOn:
		s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) { c.Resume(now, id) })
	case s.real == nil:
		s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) { c.Suspend(now, id) })
	case goOn:
		s.admin(t, "scontrol", "resume", id.String())
	default:
		s.admin(t, "scontrol", "suspend", id.String())
	}
}

// submitAsRoot makes a held job of root's until the test ends.
func (s *slurm) submitAsRoot(t *testing.T) (id sbatch.JobID) {
	t.Helper()
	if s.real != nil {
		out := strings.TrimSpace(s.admin(t, "sbatch", "--parsable", "--hold", "--job-name="+s.name, "--output=/dev/null", "--wrap=true"))
		t.Cleanup(func() { s.admin(t, "scancel", out) })
		n, err := strconv.ParseInt(out, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return sbatch.JobID(n)
	}
	s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) {
		var err error
		if id, err = c.Submit(now, 0, s.held()); err != nil {
			t.Fatal(err)
		}
	})
	return id
}

func adminSocket(pid int, test string) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(test)) // it never fails
	return fmt.Sprintf("/tmp/cltest-admin-%d-%x", pid, h.Sum32())
}

// serveAdmin runs commands of Slurm's as root for the process that runs the
// test as researcher.
func serveAdmin(t *testing.T, cluster slurmcluster.Cluster) {
	t.Helper()
	u := testenv.Researcher(t)
	path := adminSocket(os.Getpid(), t.Name())
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chown(path, u.UID, u.GID); err != nil {
		t.Fatal(err)
	}
	go func() { // until the listener is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var args []string
			if json.NewDecoder(conn).Decode(&args) == nil {
				args[0] = filepath.Join(cluster.Bin, args[0])
				env := []string{"SLURM_CONF=" + cluster.Conf, "SLURM_TIME_FORMAT=%s"}
				_ = json.NewEncoder(conn).Encode(answerOf(command.Command{Args: args, Env: env, Dir: "/tmp"}.Output(context.Background())))
			}
			_ = conn.Close()
		}
	}()
}

// request is a small job.
func (s *slurm) request(script string) sbatch.Request {
	return sbatch.Request{Name: s.name, MemoryMiB: 16, Output: "/dev/null", Dir: "/tmp", Script: "#!/bin/sh\n" + script + "\n"}
}

func (s *slurm) held() sbatch.Request {
	r := s.request("true")
	r.Extra = []string{"--hold"}
	return r
}

// named adds a suffix to the name of a request.
func named(r sbatch.Request, suffix string) sbatch.Request {
	r.Name += suffix
	return r
}

// with gives a request further options.
func with(r sbatch.Request, extra ...string) sbatch.Request {
	r.Extra = slices.Concat(r.Extra, extra)
	return r
}

// submit makes a job that is cancelled when the test ends.
func (s *slurm) submit(t *testing.T, r sbatch.Request) sbatch.JobID {
	t.Helper()
	id, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	s.cancelLater(t, id, r.Name)
	return id
}

func (s *slurm) cancelLater(t *testing.T, id sbatch.JobID, name string) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Cancel(context.Background(), name, id); err != nil {
			t.Error(err)
		}
	})
}

func (s *slurm) observe(t *testing.T) sbatch.Snapshot {
	t.Helper()
	found, err := s.Observe(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// jobs returns the jobs of a name, as squeue shows them.
func (s *slurm) jobs(t *testing.T, name string) func() []sbatch.Job {
	t.Helper()
	return func() []sbatch.Job { return s.observe(t).ByName()[name] }
}

// accounting returns the jobs of a name, as sacct shows them.
func (s *slurm) accounting(t *testing.T, name string) func() []sbatch.Job {
	t.Helper()
	return func() []sbatch.Job {
		jobs, err := s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), sbatch.Which{Names: []string{name, "cltest-none"}})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
}

// await waits until there is one job, and it is as wanted.
func await(t *testing.T, look func() []sbatch.Job, want func(sbatch.Job) bool) sbatch.Job {
	t.Helper()
	var found []sbatch.Job
	testenv.Await(t, "the job is as wanted", func() bool {
		if found = look(); len(found) > 1 {
			t.Fatalf("several jobs: %+v", found)
		}
		return len(found) == 1 && want(found[0])
	}, &found)
	return found[0]
}

func in(state sbatch.State) func(sbatch.Job) bool {
	return func(j sbatch.Job) bool { return j.State == state }
}
