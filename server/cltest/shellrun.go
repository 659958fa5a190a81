package cltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// shellRun is a run of a shellWorker.
type shellRun struct {
	worker    *shellWorker
	ctx       context.Context
	bundle    *codalab.RunBundle
	resources *codalab.Resources
	dir       string
	// report is guarded by the worker's mutex.
	report codalab.RunReport
	// kill ends the command; failure is the reason, unless the command itself is. The first
	// reason counts.
	kill    context.CancelFunc
	once    sync.Once
	failure string
}

func newShellRun(ctx context.Context, w *shellWorker, m codalab.Message, began time.Time) *shellRun {
	ctx, kill := context.WithCancel(ctx)
	r := &shellRun{
		worker: w, ctx: ctx, bundle: m.Bundle, resources: m.Resources, dir: filepath.Join(w.dir, m.Bundle.UUID), kill: kill,
		report: codalab.RunReport{
			UUID: m.Bundle.UUID, State: codalab.StatePreparing, RunStatus: "Preparing", Remote: w.id,
			BundleStart: codalab.UnixSeconds(began), Profile: map[string]codalab.StageTimes{},
		},
	}
	for _, stage := range codalab.Stages() {
		r.report.Profile[stage] = codalab.StageTimes{} // its time is not known yet
	}
	r.report.Profile[codalab.StagePreparing] = codalab.NewStageTimes(began, began)
	return r
}

// parents returns the paths of the run's parents.
func (r *shellRun) parents() []string {
	var paths []string
	for _, d := range r.bundle.Dependencies {
		paths = append(paths, d.ChildPath)
	}
	return paths
}

// fail ends the run with a reason.
func (r *shellRun) fail(why string) {
	r.once.Do(func() { r.failure = why })
	r.kill()
}

// updateReport changes the report.
func (r *shellRun) updateReport(f func(*codalab.RunReport)) { r.worker.change(func() { f(&r.report) }) }

// runBundle fetches the parents, runs the command and sends the results.
func (r *shellRun) runBundle() {
	defer r.kill()
	code, failure := r.runCommand()
	upload := context.WithoutCancel(r.ctx) // a kill leaves partial results
	if err := r.upload(upload); err != nil && failure == "" {
		failure = err.Error()
	}
	r.updateReport(func(report *codalab.RunReport) {
		report.State, report.RunStatus, report.ExitCode = codalab.StateFinalizing, "Finished", code
		report.Profile = maps.Clone(report.Profile) // an older report may be on its way
		for _, stage := range []string{codalab.StageRunning, codalab.StageCleaningUp, codalab.StageUploading} {
			report.Profile[stage] = report.Profile[codalab.StagePreparing] // no step shows the values
		}
		if failure != "" {
			report.FailureMessage = &failure
		}
	})
}

// runCommand returns the command's exit code, if it has one, and the reason of a failure.
func (r *shellRun) runCommand() (code *int, failure string) {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err.Error()
	}
	if strings.HasPrefix(r.resources.ImageReference, "nosuch") {
		return nil, "Failed to download Docker image: must be real number, not ImageNotFound"
	}
	for _, d := range r.bundle.Dependencies {
		if err := r.fetch(d); err != nil {
			return nil, fmt.Sprintf("Failed to download dependency %s: Dependency download failed: %s", d.ChildPath, err)
		}
	}
	r.updateReport(func(report *codalab.RunReport) {
		report.State, report.RunStatus = codalab.StateRunning, "Running job in container."
	})
	exit, said, err := r.execute()
	r.once.Do(func() {}) // from here on r.failure stays
	switch {
	case err != nil:
		return nil, err.Error()
	case r.failure != "" && said != "":
		return nil, said + ". " + r.failure
	case r.failure != "":
		return nil, r.failure
	case exit != 0:
		return &exit, fmt.Sprintf("Exit code %d", exit)
	}
	return &exit, ""
}

// fetch copies a parent to its path in the run's directory.
func (r *shellRun) fetch(d codalab.RunDependency) error {
	parent := codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}
	at := filepath.Join(r.dir, d.ChildPath)
	source, err := r.worker.api.OpenContents(r.ctx, parent, nil)
	var refused *codalab.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("Unable to get bundle info from bundle service: Not Found - %s", refused.Message)
	}
	if err != nil {
		return err
	}
	defer source.Close()
	if source.Type == codalab.TargetFile {
		var data bytes.Buffer
		if _, err := data.ReadFrom(source); err != nil {
			return fmt.Errorf("read parent: %w", err)
		}
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, data.Bytes(), 0o600))
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = tarstream.Unpack(r.ctx, source, root, tarstream.Limits{})
	return err
}

// execute runs the command within its limits. It returns its exit code, and bash's messages.
func (r *shellRun) execute() (exit int, said string, err error) {
	cmd := exec.CommandContext(r.ctx, "/bin/bash", "-c", "( "+r.bundle.Command+" ) > stdout 2> stderr")
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return 0, "", fmt.Errorf("start command: %w", err)
	}
	ended := make(chan struct{})
	r.worker.aside.Go(func() { r.watch(cmd.Process.Pid, ended) })
	err = cmd.Wait()
	close(ended)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return failed.ExitCode(), stderr.String(), nil
	}
	return 0, stderr.String(), err
}

// watch ends a command that exceeds its limits.
func (r *shellRun) watch(group int, ended <-chan struct{}) {
	began := time.Now()
	for {
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
		uptime := time.Since(began)
		if limit := r.resources.Time; limit > 0 && uptime > time.Duration(limit)*time.Second {
			r.fail(fmt.Sprintf("Time limit exceeded. (Container uptime %.1fs > time limit %.1fs)", uptime.Seconds(), float64(limit)))
		}
		if limit := r.resources.Disk; limit > 0 && diskUse(r.dir) > limit {
			r.fail(fmt.Sprintf("Disk limit %dmb exceeded.", limit>>20))
		}
		if limit := r.resources.Memory; limit > 0 {
			// Like the kernel, kill the largest process; bash prints a message.
			if largest, size := largestProcess(group); size > limit {
				r.once.Do(func() { r.failure = fmt.Sprintf("Memory limit %dm exceeded.", limit>>20) })
				_ = syscall.Kill(largest, syscall.SIGKILL) // it may have ended
			}
		}
	}
}

// diskUse returns the number of bytes in a directory's files.
func diskUse(dir string) int64 {
	total := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // files come and go
		if err != nil {
			return nil //nolint:nilerr // it has gone
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// largestProcess returns the process of a group with the most memory, and its memory in bytes.
func largestProcess(group int) (pid int, size int64) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// proc_pid_stat(5); the name, which may have spaces, ends with the last parenthesis.
		before, after, _ := bytes.Cut(data, []byte("("))
		fields := strings.Fields(string(after[bytes.LastIndexByte(after, ')')+1:]))
		var id, itsGroup int
		var pages int64
		if _, err := fmt.Sscan(string(before)+" "+fields[2]+" "+fields[21], &id, &itsGroup, &pages); err != nil {
			continue
		}
		if bytes := pages * int64(os.Getpagesize()); itsGroup == group && bytes > size {
			pid, size = id, bytes
		}
	}
	return pid, size
}

// upload sends the results: all files in the run's directory except its parents.
func (r *shellRun) upload(ctx context.Context) error {
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	parents, patterns := r.parents(), r.bundle.Metadata.Strings("exclude_patterns")
	archive, err := contents.Archive(ctx, root, "", func(below string) bool {
		return slices.Contains(parents, below) || slices.ContainsFunc(patterns, func(pattern string) bool {
			excluded, err := path.Match(pattern, path.Base(below))
			return excluded && err == nil
		})
	})
	if err != nil {
		return err
	}
	defer archive.Close()
	return r.worker.api.UploadContents(ctx, r.bundle.UUID, client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true}, archive)
}
