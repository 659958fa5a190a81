package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// tree lists a directory with the texts of its files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[name] = "directory"
			return err
		}
		data, err := os.ReadFile(name)
		files[name] = string(data)
		return err
	}))
	return files
}

func TestAttemptBegunElsewhereIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(spool.Attempt) error{
		"by a worker": func(a spool.Attempt) error {
			_, _, err := a.Begin(t.Context(), spool.Started{Token: "theirs", Node: "n2", Job: "6"})
			return err
		},
		"fenced by a bridge": func(a spool.Attempt) error {
			_, _, err := a.Fence(t.Context(), time.Now())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, t.TempDir(), nil)
			must(t, take(s.attempt))
			before := tree(t, string(s.layout))
			w := newWorker(t, func(context.Context, container.Container) (container.Exit, error) {
				t.Error("the command was run")
				return container.Exit{}, nil
			})
			if _, err := w.Run(t.Context(), s.attempt.SpecPath()); !errors.Is(err, ErrTaken) {
				t.Errorf("error %v, want ErrTaken", err)
			}
			if diff := cmp.Diff(before, tree(t, string(s.layout))); diff != "" {
				t.Errorf("the worker touched (-before +after):\n%s", diff)
			}
		})
	}
}

func TestUnusableSpecificationBeginsNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"none":            "",
		"not JSON":        "{",
		"another version": `{"format": 99, "bundle": "0x1", "run_dir": "/r", "image": "/i", "command": "c"}`,
		"bundle leads up": `{"format": 1, "bundle": "../x", "run_dir": "/r", "image": "/i", "command": "c"}`,
		"relative":        `{"format": 1, "bundle": "0x1", "run_dir": "r", "image": "/i", "command": "c"}`,
		"no command":      `{"format": 1, "bundle": "0x1", "run_dir": "/r", "image": "/i"}`,
		"no image":        `{"format": 1, "bundle": "0x1", "run_dir": "/r", "image_digest": "a@sha256:1", "command": "c"}`,
		"no engine's":     `{"format": 1, "bundle": "0x1", "run_dir": "/r", "runtime": "docker", "command": "c"}`,
		"engine's file":   `{"format": 1, "bundle": "0x1", "run_dir": "/r", "runtime": "docker", "image": "i", "image_digest": "a@sha256:1", "command": "c"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := filepath.Join(t.TempDir(), "spec.json")
			if text != "" {
				must(t, os.WriteFile(spec, []byte(text), 0o600))
			}
			if _, err := newWorker(t, succeeds).Run(t.Context(), spec); !errors.Is(err, ErrSpec) {
				t.Errorf("error %v, want ErrSpec", err)
			}
			if _, err := spool.AttemptOf(spec).ReadStarted(); !errors.Is(err, spool.ErrNone) {
				t.Errorf("the attempt was begun: %v", err)
			}
		})
	}
}

// A bridge on an older copy of its ledger may overwrite a specification for which a job waits.
func TestSpecificationOfAnotherSubmissionIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ job, spec, refusal string }{
		{"b1.7", "b1.7", ""},
		{"b1.7", "b1.8", "it is for submission b1.8, and this job is of submission b1.7"},
		{"b1.7", "", ""}, // of an earlier version
		{"", "b1.7", ""}, // by hand
	} {
		s := newSite(t, t.TempDir(), func(s *spool.Spec) { s.Submission = c.spec })
		w := newWorker(t, succeeds)
		w.Submission = c.job
		_, err := w.Run(t.Context(), s.attempt.SpecPath())
		if c.refusal == "" {
			must(t, err)
			continue
		}
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := s.attempt.ReadStarted(); !errors.Is(err, spool.ErrNone) {
			t.Errorf("%+v: the attempt was begun: %v", c, err)
		}
	}
}

// An engine's container is neither in the job's cgroup nor a child of the worker.
func TestEnginesContainerIsLimitedAndMeasuredByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorker(t, func(ctx context.Context, c container.Container) (container.Exit, error) {
		if c.SIF != "" || c.PinnedReference != "a/b@sha256:1" || c.MemoryBytes != 1<<30 || c.ShmBytes != 1<<20 {
			t.Errorf("container %+v", c)
		}
		c.OnChoice(container.Choice{Runtime: runtimes.Docker})
		c.OnStart(container.Running{PID: 44, Started: 9, Name: "cl-slurm-1", Network: true})
		must(t, pause.For(ctx, 10*time.Second))
		return container.Exit{Code: 137, Signal: 9, Usage: container.Usage{User: 7 * time.Second, System: time.Second, MemoryPeak: 1 << 30, OOMKills: 1}}, nil
	})
	jobCgroup(t, w, "68719476736", "99999999999") // of a job that others share
	cgroups, id := t.TempDir(), strings.Repeat("ab", 32)
	for name, text := range map[string]string{
		filepath.Join(w.proc, "44/cgroup"):                       "5:memory:/docker/" + id + "\n0::/system.slice/docker.service\n",
		filepath.Join(w.proc, "self/mountinfo"):                  "30 20 0:30 / " + cgroups + " rw,relatime - cgroup cgroup rw,memory\n",
		cgroups + "/docker/" + id + "/memory.limit_in_bytes":     "1090519040",
		cgroups + "/docker/" + id + "/memory.usage_in_bytes":     "5000",
		cgroups + "/docker/" + id + "/memory.max_usage_in_bytes": "1000000",
	} {
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, dir, func(s *spool.Spec) {
			s.Runtime, s.Inputs, s.MemoryBytes, s.ShmBytes = runtimes.Docker, spool.Inputs{PinnedReference: "a/b@sha256:1"}, 1<<30, 1<<20
		})
		e := s.run(t, w)
		if e.Cause != spool.CauseLimit || e.Failure != "Memory limit 1g exceeded (used 1g). Ask for more with --request-memory." {
			t.Errorf("recorded %+v", e)
		}
		if want := (spool.Usage{UserSeconds: 7, SystemSeconds: 1, MemoryBytes: 5000, MemoryPeak: 1 << 30}); e.Usage != want {
			t.Errorf("used %+v, want %+v", e.Usage, want)
		}
		status, err := s.attempt.ReadStatus()
		want := spool.Container{Runtime: runtimes.Docker, Name: "cl-slurm-1", PID: 44, Started: 9, Network: true}
		if err != nil || status.Container != want {
			t.Errorf("status %+v, %v", status, err)
		}
	})
}

func TestEndIsRecordedAndRung(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		c.OnStart(container.Running{PID: 1})
		if _, err := c.Stdout.WriteString("to stdout\n"); err != nil {
			t.Error(err)
		}
		if !slices.Contains(c.Env, "HOME=/"+bundle) || c.Dir != "/"+bundle || !slices.Contains(c.Env, "CODALAB=true") {
			t.Errorf("environment %q, working directory %s", c.Env, c.Dir)
		}
		return container.Exit{Code: 3}, nil
	})
	exit, err := w.Run(t.Context(), s.attempt.SpecPath())
	must(t, err)
	started, err := s.attempt.ReadStarted()
	must(t, err)
	written := s.exit(t)
	if written.Token != started.Token || started.Node != "n1" || started.Job != "7" {
		t.Errorf("exit of %s, begun by %+v", written.Token, started)
	}
	if written.Cause != spool.CauseUser || *written.ExitCode != 3 || *exit.ExitCode != 3 || written.Failure != "" {
		t.Errorf("recorded %+v", written)
	}
	if written.CommandStarted.IsZero() || written.CommandEnded.Before(written.CommandStarted) {
		t.Errorf("ran from %v to %v", written.CommandStarted, written.CommandEnded)
	}
	if used := written.Usage.DiskBytes; used < int64(len("to stdout\n")) || used > 1<<20 {
		t.Errorf("disk use %d", written.Usage.DiskBytes)
	}
	rang, err := s.layout.Bell().TakeRings("b1")
	if want := []spool.Ring{{Bundle: bundle, Attempt: "1-b1"}}; err != nil || !slices.Equal(rang, want) {
		t.Errorf("bell: %v, %v", rang, err)
	}
	if left, err := os.ReadDir(s.spec.Scratch); err != nil || len(left) > 0 {
		t.Errorf("left in the scratch directory: %v, %v", left, err)
	}
}

func TestTermBeforeTheCommandIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w := newWorker(t, func(ctx context.Context, _ container.Container) (container.Exit, error) {
		return container.Exit{}, ctx.Err()
	})
	_, err := w.Run(ctx, s.attempt.SpecPath())
	must(t, err)
	if e := s.exit(t); !e.Terminated || e.ExitCode != nil || e.Cause != spool.CausePlatform {
		t.Errorf("recorded %+v", e)
	}
}

func TestFailureOfTheWorkerIsThePlatformsFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run    runner
		change func(*spool.Spec)
		want   string
	}{
		"container": {
			run: func(context.Context, container.Container) (container.Exit, error) {
				return container.Exit{}, errors.New("this node has no /dev/fuse")
			},
			want: "This node has no /dev/fuse.",
		},
		"panic": {
			run: func(context.Context, container.Container) (container.Exit, error) {
				panic("at the disco")
			},
			want: "The worker failed: at the disco.",
		},
		"no GPUs": {
			run:    succeeds,
			change: func(s *spool.Spec) { s.GPUs = 1 },
			want:   "Node n1: the bundle asked for 1 GPU, and its job may open 0 of the node's 0.",
		},
		"no scratch": {
			run:    succeeds,
			change: func(s *spool.Spec) { s.Scratch = "/none" },
			want:   "Node n1: make a private directory: stat /none: no such file or directory (the queue's scratch in the bridge's configuration).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, t.TempDir(), c.change)
			if e := s.run(t, newWorker(t, c.run)); e.Cause != spool.CausePlatform || e.ExitCode != nil || !strings.HasPrefix(e.Failure, c.want) {
				t.Errorf("recorded %+v, want %q", e, c.want)
			}
		})
	}
}

func TestMissingWorkingDirectoryIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	must(t, os.RemoveAll(s.spec.RunDir))
	if e := s.run(t, newWorker(t, succeeds)); e.Cause != spool.CausePlatform || !strings.HasPrefix(e.Failure, "Node n1: open the run directory: ") {
		t.Errorf("recorded %+v", e)
	}
}

func TestStatusFollowsTheStageAndThenEveryFewSeconds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWorker(t, nil)
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w.Containers = runner(func(_ context.Context, c container.Container) (container.Exit, error) {
			<-gate
			c.OnStart(container.Running{PID: 1})
			<-gate
			return container.Exit{}, nil
		})
		s := newSite(t, dir, nil)
		done := make(chan error, 1)
		go func() {
			_, err := w.Run(t.Context(), s.attempt.SpecPath())
			done <- err
		}()
		look := func() spool.Status {
			synctest.Wait()
			status, err := s.attempt.ReadStatus()
			must(t, err)
			return status
		}
		synctest.Wait()
		if got, err := s.attempt.ReadStatus(); !errors.Is(err, spool.ErrNone) {
			t.Errorf("a status before the command had time to begin: %+v, %v", got, err)
		}
		time.Sleep(statusDelay)
		if got := look(); got.Stage != spool.StageStarting || !got.CommandStarted.IsZero() {
			t.Errorf("at first: %+v", got)
		}
		time.Sleep(time.Second)
		gate <- struct{}{}
		running := look()
		if running.Stage != spool.StageRunning || time.Since(running.At) != 0 || time.Since(running.CommandStarted) != 0 {
			t.Errorf("running: %+v", running)
		}
		time.Sleep(2 * statusPause)
		if got := look(); time.Since(got.At) >= statusPause {
			t.Errorf("the status is %v old", time.Since(got.At))
		}
		gate <- struct{}{}
		must(t, <-done)
	})
}

// The bridge reads an attempt's records when the doorbell rings, so the record must be there that shows the begin
// of the command.
func TestBellRingsWhenTheRecordsShowTheBeginOfTheCommand(t *testing.T) {
	t.Parallel()
	const setup = time.Second / 10
	for name, c := range map[string]struct {
		setup     time.Duration
		fullUntil time.Duration // no status record can be written before
		unpacks   bool          // at once
		rings     []string      // the stage in the records at each ring
	}{
		"a usual start":   {setup: setup, rings: []string{"running"}},
		"a slow setup":    {setup: time.Minute, rings: []string{"starting", "running"}},
		"it unpacks":      {setup: time.Minute, unpacks: true, rings: []string{"unpacking", "running"}},
		"a disk is full":  {setup: setup, fullUntil: time.Minute, rings: []string{"", "running"}},
		"full for longer": {setup: setup, fullUntil: 2 * time.Hour, rings: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSite(t, func(_ context.Context, r container.Container) (container.Exit, error) {
				r.OnChoice(container.Choice{})
				if c.unpacks {
					r.OnUnpack()
				}
				time.Sleep(c.setup)
				r.OnStart(container.Running{PID: 1})
				time.Sleep(time.Hour)
				return container.Exit{}, nil
			}, nil, func(t *testing.T, s site, w Worker) {
				status := filepath.Join(s.attempt.Dir, "status.json")
				if c.fullUntil > 0 {
					must(t, os.MkdirAll(filepath.Join(status, "x"), 0o700))
					time.AfterFunc(c.fullUntil, func() {
						if err := os.RemoveAll(status); err != nil {
							t.Error(err)
						}
					})
				}
				done := make(chan error, 1)
				go func() {
					_, err := w.Run(t.Context(), s.attempt.SpecPath())
					done <- err
				}()
				var rings []string
				for _, pause := range []time.Duration{2 * setup, 2 * time.Second, time.Minute + 30*time.Second, 50 * time.Minute} {
					time.Sleep(pause)
					synctest.Wait()
					rang, err := s.layout.Bell().TakeRings("b1")
					must(t, err)
					for range rang {
						read, _ := s.attempt.ReadStatus()
						rings = append(rings, string(read.Stage))
					}
				}
				must(t, <-done)
				if diff := cmp.Diff(c.rings, rings); diff != "" {
					t.Errorf("rings (-want +got):\n%s", diff)
				}
				if rang, err := s.layout.Bell().TakeRings("b1"); err != nil || len(rang) != 1 {
					t.Errorf("at the end: %v, %v", rang, err)
				}
			})
		})
	}
}

// Each status is four requests to the shared disk's server, which ten thousand workers share.
func TestStatusOfALongRunIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	onSite(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		c.OnStart(container.Running{PID: 1})
		time.Sleep(30 * time.Minute)
		return container.Exit{}, nil
	}, nil, func(t *testing.T, s site, w Worker) {
		var written []time.Time
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			for ; ctx.Err() == nil; time.Sleep(time.Second) {
				if status, err := s.attempt.ReadStatus(); err == nil && (len(written) == 0 || !written[len(written)-1].Equal(status.At)) {
					written = append(written, status.At)
				}
			}
		}()
		s.run(t, w)
		stop()
		time.Sleep(time.Minute)
		if n := len(written); n < 30 || n > 60 {
			t.Errorf("%d status records in half an hour, want about fifty", n)
		}
	})
}

func TestFullDiskDelaysTheRecordAndLosesNothing(t *testing.T) {
	t.Parallel()
	onSite(t, succeeds, nil, func(t *testing.T, s site, w Worker) {
		// Directories of their names keep both records from being written.
		for _, name := range []string{"status.json", "exit.json"} {
			must(t, os.MkdirAll(filepath.Join(s.attempt.Dir, name, "x"), 0o700))
		}
		go func() {
			time.Sleep(30 * time.Second)
			if err := os.RemoveAll(filepath.Join(s.attempt.Dir, "exit.json")); err != nil {
				t.Error(err)
			}
		}()
		if e := s.run(t, w); e.Cause != spool.CauseSucceeded {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestAttemptIsTakenWhenTheDiskAllows(t *testing.T) {
	t.Parallel()
	onSite(t, succeeds, nil, func(t *testing.T, s site, w Worker) {
		started := filepath.Join(s.attempt.Dir, "started")
		must(t, os.Mkdir(started, 0o700)) // not readable as a record
		go func() {
			time.Sleep(30 * time.Second)
			if err := os.Remove(started); err != nil {
				t.Error(err)
			}
		}()
		s.run(t, w)
		s.exit(t)

		must(t, os.Remove(started))
		must(t, os.Mkdir(started, 0o700))
		if _, err := w.Run(t.Context(), s.attempt.SpecPath()); !errors.Is(err, ErrNotBegun) {
			t.Errorf("error %v, want ErrNotBegun", err)
		}
	})
}

func TestUnrecordedEndIsAnError(t *testing.T) {
	t.Parallel()
	onSite(t, succeeds, nil, func(t *testing.T, s site, w Worker) {
		must(t, os.MkdirAll(filepath.Join(s.attempt.Dir, "exit.json", "x"), 0o700))
		exit, err := w.Run(t.Context(), s.attempt.SpecPath())
		if !errors.Is(err, ErrUnrecorded) || exit.Cause != spool.CauseSucceeded {
			t.Errorf("%+v, %v; want ErrUnrecorded, and how it ended", exit, err)
		}

		must(t, os.Remove(filepath.Join(s.attempt.Dir, "started")))
		w.sync = func(*os.File) error { return syscall.EIO } // results are lost, too
		if exit, err = w.Run(t.Context(), s.attempt.SpecPath()); !errors.Is(err, ErrUnrecorded) || exit.Cause != spool.CausePlatform {
			t.Errorf("without the results: %+v, %v", exit, err)
		}
	})
}

func TestTimeBetweenTERMAndKILLIsTheQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), func(s *spool.Spec) { s.KillGraceSeconds = 600 })
	var grace time.Duration
	w := newWorker(t, func(ctx context.Context, c container.Container) (container.Exit, error) {
		grace = c.KillGraceOrDefault()
		return succeeds(ctx, c)
	})
	_, err := w.Run(t.Context(), s.attempt.SpecPath())
	must(t, err)
	if grace != 10*time.Minute {
		t.Errorf("the command gets KILL %s after TERM, want ten minutes", grace)
	}
}

// The comment of an array's tasks names no bundle, so the bridge knows the task that began an attempt by its submission.
func TestTaskOfAnArrayTellsItsSubmission(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ task, job, submission string }{
		{"", "12", ""},
		{"10_2", "10_2", "b1.7"},
	} {
		s := newSite(t, t.TempDir(), func(s *spool.Spec) { s.Submission = "b1.7" })
		w := newWorker(t, succeeds)
		w.Job, w.ArrayTask, w.Submission = "12", c.task, "b1.7"
		_, err := w.Run(t.Context(), s.attempt.SpecPath())
		must(t, err)
		started, err := s.attempt.ReadStarted()
		must(t, err)
		if started.Job != c.job || started.Submission != c.submission {
			t.Errorf("task %q: job %s of submission %q, want %+v", c.task, started.Job, started.Submission, c)
		}
	}
}
