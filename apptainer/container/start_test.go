package container_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
)

// pairs is how many starts BenchmarkApptainerBesideBare compares; odd, for the
// median.
const pairs = 21

// The runtime apptainerexec is compared with Apptainer alone, with the same options
// and mounts, in turn.
func BenchmarkApptainerBesideBare(b *testing.B) {
	program := apptainerRuntime(b).Apptainer.Program
	image, enter := shellImage(b), enter.Path(b)
	for _, plain := range []bool{false, true} {
		name := map[bool]string{false: "apptainer", true: "plain"}[plain]
		b.Run(name, func(b *testing.B) {
			scratch := userDir(b)
			emptied(b, scratch)
			w := apptainerexec.Runtime{Program: program, Helper: enter, Plain: plain}
			ours := func() {
				exit, err := w.Run(b.Context(), container.Container{SIF: image, Scratch: scratch, Args: []string{"true"}})
				if err != nil || exit.Code != 0 {
					b.Fatal(exit, err)
				}
			}
			n := 0
			bare := func() {
				n++
				dir := filepath.Join(scratch, "bare"+strconv.Itoa(n))
				must(b, os.MkdirAll(filepath.Join(dir, "overlay"), 0o755))
				must(b, os.Mkdir(filepath.Join(dir, "shm"), 0o755))
				must(b, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
				cmd := exec.Command(program, bareArgs(dir, image, enter, plain)...)
				cmd.Env, cmd.Dir = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME=" + dir}, "/"
				if said, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, said)
				}
			}
			var ourTimes, bareTimes []time.Duration
			for b.Loop() {
				for range pairs {
					ourTimes = append(ourTimes, timed(ours))
					bareTimes = append(bareTimes, timed(bare))
				}
			}
			slices.Sort(ourTimes)
			slices.Sort(bareTimes)
			our, alone := ourTimes[len(ourTimes)/2], bareTimes[len(bareTimes)/2]
			b.ReportMetric(float64(our.Microseconds())/1000, "ms/ours")
			b.ReportMetric(float64(alone.Microseconds())/1000, "ms/bare")
			b.ReportMetric(float64(our)/float64(alone), "ratio")
		})
	}
}

// bareArgs are the arguments of Apptainer alone.
func bareArgs(dir, image, enter string, plain bool) []string {
	args := []string{"--silent", "--nocolor", "exec", "--containall", "--no-home", "--no-init", "--no-mount", "bind-paths,cwd", "--pwd", "/"}
	if plain {
		args = append(args, "--fakeroot", "--writable-tmpfs")
	} else {
		args = append(args, "--no-mount", "tmp", "--overlay", filepath.Join(dir, "overlay"), "--mount", "type=bind,source="+filepath.Join(dir, "shm")+",destination=/dev/shm")
	}
	return append(args, "--net", "--network", "none",
		"--mount", "type=bind,source="+filepath.Join(dir, "file")+",destination=/etc/hosts",
		"--mount", "type=bind,source="+enter+",destination=/.container/init,ro",
		"--mount", "type=bind,source="+filepath.Join(dir, "file")+",destination=/.container/report", image, "true")
}

func timed(run func()) time.Duration {
	began := time.Now()
	run()
	return time.Since(began)
}
