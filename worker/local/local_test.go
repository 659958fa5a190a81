package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

var _ sbatch.Scheduler = (*Scheduler)(nil)

// TestMain lets this program be a scheduler that a test kills. It submits the requests from its
// standard input, and prints a line for each.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CLTEST_LOCAL_DIR"); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testenv.Parallel(8) // the tests wait for their jobs
	os.Exit(m.Run())
}

func serve(dir string) error {
	cpus, err := affinity.Own()
	if err != nil {
		return err
	}
	s, err := Open(dir, config(cpus))
	if err != nil {
		return err
	}
	go func() { _ = s.Run(context.Background()) }()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r sbatch.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		id, err := s.Submit(context.Background(), r)
		fmt.Println(id, err)
	}
	return errors.New("the test has not killed this process")
}

func config(cpus []int) Config {
	return Config{
		Node: "n1", Machine: Machine{CPUs: cpus, Memory: 1 << 30}, Env: []string{"PATH=/usr/bin:/bin"},
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
}

// cpus returns n processors of this machine.
func cpus(t *testing.T, n int) []int {
	t.Helper()
	found, err := affinity.Own()
	must(t, err)
	if len(found) < n {
		t.Skipf("this test needs %d processors", n)
	}
	return found[:n]
}

// site is a scheduler that runs during a test.
type site struct {
	*Scheduler
	t *testing.T
	// dir is the scheduler's, files is for the jobs.
	dir, files string
	stop       func()
}

func newSite(t *testing.T, c Config) *site {
	t.Helper()
	return openSite(t, filepath.Join(t.TempDir(), "jobs"), c)
}

// openSite runs a scheduler on a directory until the test ends, or stop is called. The end of the test kills the jobs
// that are left.
func openSite(t *testing.T, dir string, c Config) *site {
	t.Helper()
	s, err := Open(dir, c)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	stopped := false
	found := &site{Scheduler: s, t: t, dir: dir, files: t.TempDir()}
	found.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			must(t, errors.Join(<-ran, s.Close()))
		}
	}
	t.Cleanup(func() {
		found.stop()
		found.killJobs()
	})
	return found
}

// killJobs kills the processes of the jobs that a stopped scheduler has left, and waits until they are gone.
func (s *site) killJobs() {
	for _, j := range s.running() {
		must(s.t, j.Process.signal(syscall.SIGKILL))
		s.killOthers(context.Background(), j.record, j.marker, true)
	}
}

// request is a job of one CPU with a script, in the directory for files.
func (s *site) request(name, script string) sbatch.Request {
	return sbatch.Request{Name: name, Script: "#!/bin/sh\n" + script + "\n", Dir: s.files, Output: filepath.Join(s.files, name+".out")}
}

// submit makes a job, which the end of the test kills.
func (s *site) submit(r sbatch.Request) sbatch.JobID {
	s.t.Helper()
	id, err := s.Submit(s.t.Context(), r)
	must(s.t, err)
	return id
}

// job returns a job as a snapshot shows it.
func (s *site) job(id sbatch.JobID) sbatch.Job {
	s.t.Helper()
	snapshot, err := s.Observe(s.t.Context(), time.Now())
	must(s.t, err)
	for _, j := range snapshot.Jobs {
		if j.ID == id {
			return j
		}
	}
	return sbatch.Job{}
}

// await waits until a job has a state.
func (s *site) await(id sbatch.JobID, state sbatch.State) sbatch.Job {
	s.t.Helper()
	var j sbatch.Job
	testenv.Await(s.t, fmt.Sprintf("job %s is %s", id, state), func() bool {
		j = s.job(id)
		return j.State == state
	}, &j)
	return j
}

// printed waits until a job has printed a line that begins with a word, and returns the rest of the
// line.
func (s *site) printed(name, word string) (rest string) {
	s.t.Helper()
	var text []byte
	testenv.Await(s.t, "the job has printed "+word, func() bool {
		text, _ = os.ReadFile(filepath.Join(s.files, name+".out")) // until the file exists
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, word+" "); ok && strings.HasSuffix(line, "\n") {
				rest = strings.TrimSuffix(value, "\n")
				return true
			}
		}
		return false
	}, &text)
	return rest
}

// process returns the process whose id the job named a has printed after a word.
func (s *site) process(word string) process {
	s.t.Helper()
	pid, err := strconv.Atoi(s.printed("a", word))
	must(s.t, err)
	found, err := procstat.Read(pid)
	must(s.t, err)
	return process(found.ID)
}

// door is a pipe at which jobs wait with "read line <door". A test lets them continue one by one.
type door struct{ *os.File }

func (s *site) door(name string) door {
	s.t.Helper()
	path := filepath.Join(s.files, name)
	must(s.t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(s.t, err)
	s.t.Cleanup(func() { _ = f.Close() })
	return door{f}
}

func (d door) open(t *testing.T) {
	t.Helper()
	_, err := d.WriteString("\n")
	must(t, err)
}

var must = testenv.Must

// clock is a clock that a test sets.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// foreign starts a process like a job's of an earlier scheduler, and returns the record of its job.
func foreign(t *testing.T, dir string, id sbatch.JobID, script string) (record, *command.Held) {
	t.Helper()
	boot, err := thisBoot()
	must(t, err)
	must(t, os.MkdirAll(dir, 0o700))
	held, err := command.Detached{
		Args: []string{"/bin/sh", "-c", script},
		Env:  []string{"PATH=/usr/bin:/bin", records{dir: dir}.marker(id)},
	}.Start()
	must(t, err)
	t.Cleanup(func() { _ = syscall.Kill(-held.PID(), syscall.SIGKILL) })
	main, err := procstat.Read(held.PID())
	must(t, err)
	return record{
		ID: id, Request: request{Name: "earlier", Script: "#!/bin/sh\n", CPUs: 1}, Submitted: time.Now(), Started: time.Now(),
		State: sbatch.StateRunning, CPUs: cpus(t, 1), Process: process(main.ID), Boot: boot,
	}, held
}

// keep writes records as an earlier scheduler would.
func keep(t *testing.T, dir string, all ...record) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	for _, r := range all {
		must(t, records{dir: dir}.save(r))
	}
}
