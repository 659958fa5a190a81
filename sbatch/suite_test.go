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
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// TestMain lets this program be the commands of a slurmtest.Cluster.
func TestMain(m *testing.M) {
	slurmtest.Main()
	os.Exit(m.Run())
}

// slurm is a cluster that a test of the suite runs on: the real one of this
// machine, as the user researcher, or a fake, by its executables or within this
// process.
type slurm struct {
	*sbatch.Client
	// name is for the test's jobs. No other job's begins so.
	name string
	// dir is the test's own directory, which the nodes see.
	dir string
	// adminBin has the commands as run by root; those of the real cluster are
	// asked of the process that began this one.
	adminBin string
	fake     *slurmtest.Cluster
	// killWait is the site's KillWait, soon an answer of sbatch that would be
	// on time.
	killWait, soon time.Duration
}

// onEach runs a test on the real cluster and on the fakes: what it shows of the
// one has to be true of the others.
func onEach(t *testing.T, test func(t *testing.T, s *slurm)) {
	t.Helper()
	onExecutables(t, test)
	t.Run("inprocess", func(t *testing.T) {
		t.Parallel()
		s := newFake(t)
		s.Client = s.fake.Client()
		test(t, s)
	})
}

// onExecutables is onEach for tests of the commands themselves.
func onExecutables(t *testing.T, test func(t *testing.T, s *slurm)) {
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
		client := &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}
		test(t, &slurm{Client: client, name: uniqueName(), dir: os.Getenv("TMPDIR"), killWait: 3 * time.Second, soon: 3 * time.Second})
	})
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, newFake(t))
	})
}

// newFake starts a fake cluster, which is like the real one but quicker.
func newFake(t *testing.T) *slurm {
	t.Helper()
	site := slurmtest.NewSite()
	site.StartDelay, site.RowAfter, site.NameAfter, site.EndAfter = 50*time.Millisecond, 150*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
	site.KillWait = 300 * time.Millisecond
	k := slurmtest.NewCluster(t, site)
	return &slurm{
		Client: &sbatch.Client{Bin: k.Bin()}, name: uniqueName(), dir: t.TempDir(), adminBin: k.AdminBin(), fake: k,
		killWait: site.KillWait, soon: 500 * time.Millisecond,
	}
}

func uniqueName() string { return fmt.Sprintf("cltest-%d-%d", os.Getpid(), time.Now().UnixNano()) }

// said is what a command of Slurm said.
type said struct {
	Out, Err string
	Exit     int
}

// command runs a command of Slurm's as the test's user, with times as epochs.
func (s *slurm) command(t *testing.T, args ...string) said {
	t.Helper()
	return s.commandIn(t, "", nil, args...)
}

// commandIn is command with a standard input and with further variables.
func (s *slurm) commandIn(t *testing.T, stdin string, env []string, args ...string) said {
	t.Helper()
	c := command.Command{Args: args, Env: append(env, "PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=%s"), Stdin: strings.NewReader(stdin)}
	run := command.Command.Output
	if s.Run != nil {
		run = func(c command.Command, ctx context.Context) ([]byte, error) { return s.Run(ctx, c) }
	} else {
		c.Args = append([]string{filepath.Join(s.Bin, args[0])}, args[1:]...)
	}
	if s.Conf != "" {
		c.Env = append(c.Env, "SLURM_CONF="+s.Conf)
	}
	return heard(run(c, t.Context()))
}

func heard(out []byte, err error) said {
	var failed *command.Error
	if errors.As(err, &failed) {
		return said{string(out), failed.Stderr, failed.ExitCode}
	}
	return said{Out: string(out)}
}

// admin runs a command of Slurm's as root, which has to succeed.
func (s *slurm) admin(t *testing.T, args ...string) string {
	t.Helper()
	var a said
	if s.adminBin != "" {
		c := command.Command{Args: append([]string{filepath.Join(s.adminBin, args[0])}, args[1:]...), Env: []string{"PATH=/usr/bin:/bin", "SLURM_TIME_FORMAT=%s"}}
		a = heard(c.Output(context.Background())) // also when the test is over
	} else {
		conn, err := net.Dial("unix", adminSocket(os.Getppid(), t.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }() // all was said
		if err := cmp.Or(json.NewEncoder(conn).Encode(args), json.NewDecoder(conn).Decode(&a)); err != nil {
			t.Fatal(err)
		}
	}
	if a.Exit != 0 {
		t.Fatalf("as root: %q: %+v", args, a)
	}
	return a.Out
}

func adminSocket(pid int, test string) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(test)) // it never fails
	return fmt.Sprintf("/tmp/cltest-admin-%d-%x", pid, h.Sum32())
}

// serveAdmin runs commands of Slurm's as root for the process that runs the
// test as researcher.
func serveAdmin(t *testing.T, cluster testenv.Cluster) {
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
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var args []string
			if json.NewDecoder(conn).Decode(&args) == nil {
				args[0] = filepath.Join(cluster.Bin, args[0])
				env := []string{"SLURM_CONF=" + cluster.Conf, "SLURM_TIME_FORMAT=%s"}
				_ = json.NewEncoder(conn).Encode(heard(command.Command{Args: args, Env: env, Dir: "/tmp"}.Output(context.Background())))
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

// named gives a request another name: the test's, and this.
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
		if err := s.Cancel(context.Background(), id, name); err != nil {
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

// jobs are those of a name, as squeue shows them.
func (s *slurm) jobs(t *testing.T, name string) func() []sbatch.Job {
	t.Helper()
	return func() []sbatch.Job { return s.observe(t).ByName()[name] }
}

// accounts are those of a name, as sacct shows them.
func (s *slurm) accounts(t *testing.T, name string) func() []sbatch.Job {
	t.Helper()
	return func() []sbatch.Job {
		jobs, err := s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), []string{name, "cltest-none"})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
}

// await looks at the one job of this name until it is as wanted.
func await(t *testing.T, look func() []sbatch.Job, want func(sbatch.Job) bool) sbatch.Job {
	t.Helper()
	var found []sbatch.Job
	until(t, func() bool {
		if found = look(); len(found) > 1 {
			t.Fatalf("several jobs: %+v", found)
		}
		return len(found) == 1 && want(found[0])
	}, &found)
	return found[0]
}

// until waits for something to hold. When it does not, last is told.
func until(t *testing.T, holds func() bool, last any) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(40 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not seen in time; last %+v", last)
		}
	}
}

func in(state sbatch.State) func(sbatch.Job) bool {
	return func(j sbatch.Job) bool { return j.State == state }
}
