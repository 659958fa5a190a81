package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestTimeLimitStopsTheCommand(t *testing.T) {
	t.Parallel()
	onSite(t, obeys, func(s *spool.Spec) { s.Seconds = 1 }, func(t *testing.T, s site, w Worker) {
		began := time.Now()
		e := s.run(t, w)
		want := "Time limit exceeded. (Container uptime 1.1s > time limit 1.0s) Ask for more with --request-time."
		if e.Cause != spool.CauseLimit || e.Failure != want || *e.ExitCode != 143 || e.Terminated {
			t.Errorf("recorded %+v", e)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

func TestDiskLimitStopsTheCommand(t *testing.T) {
	t.Parallel()
	onSite(t, obeys, func(s *spool.Spec) { s.DiskBytes = 10 }, func(t *testing.T, s site, w Worker) {
		s.write(t, "result", "eleven char")
		e := s.run(t, w)
		want := "Disk limit 10 exceeded (used " + codalab.FormatSize(e.Usage.DiskBytes) + "). Ask for more with --request-disk."
		if e.Cause != spool.CauseLimit || e.Failure != want || e.Usage.DiskBytes < 11 {
			t.Errorf("recorded %+v", e)
		}
	})
}

// A file whose name is removed goes with the command's processes, which take a while to end.
func TestDiskUsageIsWhatExceededTheLimit(t *testing.T) {
	t.Parallel()
	stops := func(ctx context.Context, c container.Container) (container.Exit, error) {
		exit, err := obeys(ctx, c)
		must(t, os.Remove(filepath.Join(workDirOf(c), "result")))
		time.Sleep(time.Minute)
		return exit, err
	}
	onSite(t, stops, func(s *spool.Spec) { s.DiskBytes = 1 << 20 }, func(t *testing.T, s site, w Worker) {
		s.write(t, "result", strings.Repeat("x", 2<<20))
		if e := s.run(t, w); e.Cause != spool.CauseLimit || e.Usage.DiskBytes < 2<<20 {
			t.Errorf("recorded %+v", e)
		}
	})
}

// The last file may be written between two measurements.
func TestDiskLimitIsJudgedAtTheEnd(t *testing.T) {
	t.Parallel()
	onSite(t, succeeds, func(s *spool.Spec) { s.DiskBytes = 10 }, func(t *testing.T, s site, w Worker) {
		s.write(t, "result", "eleven char")
		e := s.run(t, w)
		if e.Cause != spool.CauseLimit || !strings.HasPrefix(e.Failure, "Disk limit 10 exceeded (used ") || *e.ExitCode != 0 {
			t.Errorf("recorded %+v", e)
		}
	})
}

// A command may hide its files below directories that are nested deeply.
func TestDiskLimitCountsDeepDirectories(t *testing.T) {
	t.Parallel()
	onSite(t, succeeds, func(s *spool.Spec) { s.DiskBytes = 64 << 20 }, func(t *testing.T, s site, w Worker) {
		deep := s.spec.RunDir + strings.Repeat("/d", 1500)
		must(t, os.MkdirAll(deep, 0o700))
		must(t, os.WriteFile(deep+"/hidden", nil, 0o600))
		must(t, os.Truncate(deep+"/hidden", 65<<20))
		if e := s.run(t, w); e.Cause != spool.CauseLimit || !strings.HasPrefix(e.Failure, "Disk limit 64m exceeded (used ") {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestMemoryLimitHoldsWithoutCgroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorker(t, obeys)
	// Init, its copy and the servers of the image and the network are large, and the command is not.
	for pid, rss := range map[string]string{"1": "1000", "15": "1000", "16": "1000", "17": "1000", "18": "1000", "19": "1000", "20": "50", "999": "1000000"} {
		parent := map[string]string{"1": "0", "15": "1", "16": "1", "17": "1", "18": "1", "19": "1", "20": "15", "999": "2"}[pid]
		name := map[string]string{"15": "cl-first", "16": "slirp4netns", "17": "pasta.avx2", "18": "unsquashfs", "19": "squashfuse_ll"}[pid]
		must(t, os.Mkdir(filepath.Join(w.proc, pid), 0o700))
		stat := pid + " (" + name + ") S " + parent + " 0 0 0 0 0 0 0 0 0 100 200 0 0 0 0 0 0 0 0 " + rss + " 0"
		must(t, os.WriteFile(filepath.Join(w.proc, pid, "stat"), []byte(stat), 0o600))
		must(t, os.WriteFile(filepath.Join(w.proc, pid, "smaps_rollup"), []byte("00400000-ff [rollup]\nRss: 9 kB\nPss: 101 kB\n"), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, dir, func(s *spool.Spec) { s.MemoryBytes = 100 << 10 })
		e := s.run(t, w)
		want := "Memory limit 100k exceeded (used 101k). Ask for more with --request-memory."
		if e.Cause != spool.CauseLimit || e.Failure != want {
			t.Errorf("recorded %+v", e)
		}
		if e.Usage.UserSeconds < 2 || e.Usage.SystemSeconds < 4 || e.Usage.MemoryPeak < 50*4096 {
			t.Errorf("used %+v", e.Usage)
		}
	})
}

// jobCgroup gives the worker's job a memory cgroup of version 1.
func jobCgroup(t *testing.T, w Worker, limit, used string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(w.proc, "self/cgroup"):    "5:memory:/slurm/uid_1001/job_" + w.Job + "\n",
		filepath.Join(w.proc, "self/mountinfo"): "30 20 0:30 / " + dir + " rw,relatime - cgroup cgroup rw,memory\n",
		"/memory.limit_in_bytes":                limit,
		"/memory.usage_in_bytes":                used,
		"/memory.max_usage_in_bytes":            used,
		"/memory.stat":                          "total_inactive_file 0\ntotal_active_file 0\n",
	} {
		if filepath.Dir(name) == "/" {
			name = filepath.Join(dir, "slurm/uid_1001/job_"+w.Job, name)
		}
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// A job may have all of a node's memory although its bundle asked for a part.
func TestMemoryLimitHoldsWhereTheJobsIsFarAboveIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ limit, want string }{
		"the node's":   {"68719476736", "Memory limit 1g exceeded (used 1.5g). Ask for more with --request-memory."},
		"none":         {"9223372036854771712", "Memory limit 1g exceeded (used 1.5g). Ask for more with --request-memory."},
		"the kernel's": {"1140850688", "Time limit exceeded. (Container uptime 10.1s > time limit 10.0s) Ask for more with --request-time."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := newWorker(t, obeys)
			jobCgroup(t, w, test.limit, "1660944384")
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, dir, func(s *spool.Spec) { s.MemoryBytes, s.Seconds = 1<<30, 10 })
				if e := s.run(t, w); e.Cause != spool.CauseLimit || e.Failure != test.want || e.Usage.MemoryPeak != 1660944384 {
					t.Errorf("recorded %+v, want %s", e, test.want)
				}
			})
		})
	}
}
