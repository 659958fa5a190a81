package imagejob_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// realJobs returns jobs of this machine's cluster. Its kernel enforces the memory that they requested.
func realJobs(t *testing.T) imagejob.Jobs {
	t.Helper()
	cluster := testenv.Slurm(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return imagejob.Jobs{
		Slurm: observed(&sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}, 200*time.Millisecond), Now: time.Now, Program: sbatch.Program{Path: self},
		Request: sbatch.Request{Partition: "cpu", Account: "lab", Time: 5 * time.Minute, Comment: "codalab image"},
		Settle:  time.Second,
	}
}

// largeIndex returns an image whose conversion takes some hundred megabytes, because it has so many files.
func largeIndex(t *testing.T) source.Image {
	t.Helper()
	files := make([]imagetest.File, 0, 60_000)
	for i := range cap(files) {
		files = append(files, imagetest.Regular(fmt.Sprintf("usr/lib/d%02d/e%02d/file-%06d", i%100, i/100%100, i), ""))
	}
	return push(t, imagetest.GzipLayer(t, imagetest.TarStream(t, files...)))
}

func TestImageForWhichAJobHadTooLittleMemoryGetsMore(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	testenv.Containers(t)
	if !testenv.AsResearcher(t) {
		return
	}
	jobs := realJobs(t)
	jobs.MemoryMiB = []int64{8, 1024}
	counted := &counting{Slurm: jobs.Slurm}
	jobs.Slurm = counted
	dst := filepath.Join(t.TempDir(), "x.sif")
	if err := jobs.Convert(t.Context(), puller{MemoryMiB: 24}, largeIndex(t), dst, nil); err != nil {
		t.Fatal(err)
	}
	if config, err := sifconfig.Read(dst); err != nil || config.Architecture == "" {
		t.Errorf("%+v, %v", config, err)
	}
	if len(counted.asked) != 2 || counted.asked[0] != 32 || counted.asked[1] != 24+1024 {
		t.Errorf("jobs asked for %v MiB", counted.asked)
	}
}

func TestImageForWhichNoJobHasTheMemoryIsRefusedWithTheSetting(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	testenv.Containers(t)
	if !testenv.AsResearcher(t) {
		return
	}
	img := largeIndex(t)
	const sentence = `^image ".*": its conversion needs more than the 32m of memory that Slurm job \d+ requested: raise image\.memory in the bridge's configuration`
	for words, memory := range map[string][]int64{
		"$": {8},
		`; Slurm refused a job with more memory: submit cl-image-.*: Requested node configuration is not available`: {8, 900 << 10},
	} {
		jobs := realJobs(t)
		jobs.MemoryMiB = memory
		err := jobs.Convert(t.Context(), puller{MemoryMiB: 24}, img, filepath.Join(t.TempDir(), "x.sif"), nil)
		var refused *source.ImageError
		if !errors.As(err, &refused) || refused.Transient() || !regexp.MustCompile(sentence+words).MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
	}
}

// counting notes the requests of jobs.
type counting struct {
	imagejob.Slurm

	asked []int64
}

func (c *counting) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	c.asked = append(c.asked, r.MemoryMiB)
	return c.Slurm.Submit(ctx, r)
}

// The kernel may kill only the writer of the file system; then the job reports that.
func TestToolThatWasKilledForMemoryIsSlurmsToExplain(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	if !testenv.AsResearcher(t) {
		return
	}
	jobs := realJobs(t)
	jobs.MemoryMiB = []int64{8}
	jobs.Program.Path = filepath.Join(t.TempDir(), "killed")
	said := `{"error": "mksquashfs: signal: killed", "transient": true, "killed": true}`
	// One process takes the memory. The other end of a pipe would need some in the
	// same moment, and the kernel might kill slurmstepd for it: NODE_FAIL.
	script := fmt.Sprintf("#!/bin/sh\necho '%s' > \"${3%%/*}/result.json\"\ndd if=/dev/zero of=/dev/null bs=100M count=1\nexit 1\n", said)
	if err := os.WriteFile(jobs.Program.Path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	err := jobs.Convert(t.Context(), puller{MemoryMiB: 24}, push(t, imagetest.GzipLayer(t, imagetest.TarStream(t))), filepath.Join(t.TempDir(), "x.sif"), nil)
	var refused *source.ImageError
	if !errors.As(err, &refused) || refused.Transient() || !strings.Contains(err.Error(), "more than the 32m of memory") {
		t.Errorf("%v", err)
	}
}

func TestToolThatSomebodyKilledIsToldOf(t *testing.T) {
	t.Parallel()
	jobs := newJobs(t)
	tools, dst := t.TempDir(), filepath.Join(t.TempDir(), "x.sif")
	mksquashfs := "#!/bin/sh\n[ \"$1\" = -version ] && echo 'mksquashfs version 4.5.1' && exit 1\nkill -KILL $$\n"
	program := fmt.Sprintf("#!/bin/sh\nPATH='%s':$PATH exec '%s' \"$@\"\n", tools, jobs.Program.Path)
	jobs.Program.Path = filepath.Join(tools, "program")
	for path, script := range map[string]string{filepath.Join(tools, "mksquashfs"): mksquashfs, jobs.Program.Path: program} {
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	err := jobs.Convert(t.Context(), puller{}, push(t, imagetest.GzipLayer(t, imagetest.TarStream(t))), dst, nil)
	var refused *source.ImageError
	if !errors.As(err, &refused) || !refused.Transient() || !strings.Contains(err.Error(), "mksquashfs: signal: killed") {
		t.Errorf("%v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dst), "job-*", "result.json"))
	if err != nil || len(left) != 1 {
		t.Fatalf("results: %v, %v", left, err)
	}
	if said, err := os.ReadFile(left[0]); err != nil || !strings.Contains(string(said), `"killed": true`) {
		t.Errorf("the job says %s, %v", said, err)
	}
}
