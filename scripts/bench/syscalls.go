package main

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
)

const (
	// An archive of unpackedFiles empty files costs tar little but system calls.
	unpackedFiles = 100_000
	// So many containers of each kind unpack it.
	unpacks = 9
	// unpackScript unpacks the archive into memory and removes the files, four times, because the shell's clock has
	// steps of 10 ms. It prints the processor time of tar and rm (times(1p)).
	unpackScript = "for i in 1 2 3 4; do mkdir /dev/shm/f && tar xf %s -C /dev/shm/f && rm -r /dev/shm/f || exit; done; times"
)

// benchSyscalls compares the processor time of a command that makes many system calls in a container with that of
// the same command in the namespaces of bubblewrap alone, without a filter of system calls.
func (b *imageBench) benchSyscalls(ctx context.Context) {
	kept := filepath.Join(b.images, "syscalls")
	image, stop := serveImage(ctx, layoutBlobs{kept}, "syscalls", makeImage(ctx, recipe{programs: []string{"/bin/sh", "/bin/tar", "/bin/mkdir", "/bin/rm"}}, kept))
	defer stop()
	sif, archive := filepath.Join(b.dir, "syscalls.sif"), filepath.Join(b.dir, "files.tar")
	output(b.command(ctx, b.self, "convert", image, sif, b.temp))
	check(writeArchive(archive))
	cmd := b.command(ctx, b.self, "syscalls", sif, b.temp, filepath.Join(b.dir, "cl-worker"), archive)
	cmd.Stderr = os.Stderr
	took := map[string][]float64{}
	check(json.Unmarshal(must(cmd.Output()), &took))
	base := median(took["bubblewrap"])
	figure{name: "images/syscalls_builtin", value: median(took["builtin"]), unit: "s", against: "bubblewrap_without_filter", base: base, bar: 1.03 * base, barText: fmt.Sprintf("1.03x=%.3g", 1.03*base)}.print()
}

func writeArchive(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriter(f)
	w := tar.NewWriter(buffered)
	for i := range unpackedFiles {
		h := &tar.Header{Name: fmt.Sprintf("%03d/%05d", i/1000, i), Mode: 0o644, ModTime: time.Unix(1_700_000_000, 0)}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), buffered.Flush())
}

// unpackArchives unpacks an archive in each kind of container in turn, and prints tar's seconds of processor time.
func unpackArchives(ctx context.Context, sif, scratch, worker, archive string) {
	took := map[string][]float64{}
	for range unpacks {
		took["builtin"] = append(took["builtin"], unpackBuiltin(ctx, sif, scratch, worker, archive))
		out := program(ctx, "bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--uid", "0", "--gid", "0", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
			"--", "/bin/sh", "-c", fmt.Sprintf(unpackScript, archive))
		took["bubblewrap"] = append(took["bubblewrap"], childrensSeconds(out))
	}
	check(json.NewEncoder(os.Stdout).Encode(took))
}

func unpackBuiltin(ctx context.Context, sif, scratch, worker, archive string) float64 {
	out := must(os.CreateTemp(scratch, "out-"))
	defer func() { _ = out.Close() }() // only read from now on
	appended := must(os.OpenFile(out.Name(), os.O_WRONLY|os.O_APPEND, 0))
	c := container.Container{
		SIF: sif, ShellCommand: fmt.Sprintf(unpackScript, "/files.tar"), PrivateDir: scratch, Stdout: appended, Stderr: os.Stderr,
		Binds: []container.Bind{{Source: archive, Target: "/files.tar", ReadOnly: true}}, MaxProcesses: 4096, Env: []string{"PATH=/usr/bin:/bin"},
	}
	exit := must(builtin.Runtime{Helper: worker}.Run(ctx, c))
	check(appended.Close())
	if exit.Code != 0 {
		check(fmt.Errorf("the command ended with %+v", exit))
	}
	return childrensSeconds(string(must(os.ReadFile(out.Name()))))
}

var shellTime = regexp.MustCompile(`(\d+)m([\d.]+)s`)

// childrensSeconds returns the user and system time of a shell's children: the second line of times(1p).
func childrensSeconds(printed string) float64 {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	sum := 0.0
	for _, m := range shellTime.FindAllStringSubmatch(lines[len(lines)-1], -1) {
		d := must(time.ParseDuration(m[1] + "m" + m[2] + "s"))
		sum += d.Seconds()
	}
	if len(lines) != 2 || sum == 0 {
		check(fmt.Errorf("the shell printed no times: %q", printed))
	}
	return sum
}
