package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// A median is of pairs runs of each side.
const pairs = 15

// benchMain compares a small bundle, from cl run to its end, with a bare sbatch of the same command in the same
// container, on an otherwise idle cluster.
func benchMain(ctx context.Context) {
	s := startSite(ctx, testsite.Options{})
	defer func() { _ = s.Close() }() // the figures are printed before
	var ours, bare, bareLogin []times
	for range pairs {
		ours = append(ours, s.bundle(ctx))
		bare = append(bare, s.bareJob(ctx, "ALL"))
		bareLogin = append(bareLogin, s.bareJob(ctx, "NONE"))
	}
	for _, f := range []struct {
		name   string
		of     func(times) float64
		margin float64
	}{
		{"main/first_instruction", func(t times) float64 { return t.first }, 0.15},
		{"main/ready", func(t times) float64 { return t.end }, 0.9},
	} {
		base := medianOf(bare, f.of)
		figure{
			name: f.name, value: medianOf(ours, f.of), unit: "s", against: "bare_sbatch", base: base,
			bar: base + f.margin, barText: fmt.Sprintf("bare+%g=%.3g", f.margin, base+f.margin),
		}.print()
	}
	first := func(t times) float64 { return t.first }
	figure{
		name: "main/bare_first_instruction_after_login_shell", value: medianOf(bareLogin, first), unit: "s",
		against: "bare_sbatch", base: medianOf(bare, first),
	}.print()
	held := func(t times) float64 { return t.held }
	figure{name: "main/allocation_before_command", value: medianOf(ours, held), unit: "s", against: "bare_sbatch", base: medianOf(bare, held), bar: 0.3}.print()
	s.benchStart(ctx)
	var starts []float64
	for range pairs {
		starts = append(starts, seconds(func() { s.cl(ctx, "--version") }))
	}
	figure{name: "main/cl_start", value: median(starts) * 1000, unit: "ms", bar: 20}.print()
}

// times are seconds of one run: from the command that started it to its first instruction and to its end as its
// user saw it; and from the allocation to the first instruction.
type times struct{ first, end, held float64 }

// site is a running site with its image in the cache.
type site struct {
	*testsite.Site
	sif  string
	runs int
}

func startSite(ctx context.Context, o testsite.Options) *site {
	s := &site{Site: must(testsite.Start(ctx, o))}
	err := attempt(func() {
		s.bundle(ctx)
		found := must(filepath.Glob(filepath.Join(s.Shared, "cache/sif/*/*/content")))
		if len(found) != 1 {
			check(fmt.Errorf("the SIFs in the cache are %q, want one", found))
		}
		s.sif = found[0]
	})
	if err != nil {
		_ = s.Close() // the error tells more
	}
	check(err)
	return s
}

func (s *site) cl(ctx context.Context, args ...string) string  { return must(s.CL(ctx, args...)) }
func (s *site) run(ctx context.Context, args ...string) string { return must(s.Run(ctx, args...)) }

// stamp is the command that is measured: it prints the time. It has no "%", by
// which cl names bundles.
const stamp = "date --rfc-3339=ns"

// waitIdle waits until the cluster is idle, and then for a random time: Slurm starts jobs once a second, and
// both sides of a pair must meet all parts of that second.
func (s *site) waitIdle(ctx context.Context) {
	for s.run(ctx, "squeue", "--noheader", "--states=PD,R,CG", "--format=%A") != "" {
		check(pause.For(ctx, 100*time.Millisecond))
	}
	check(pause.For(ctx, time.Second+rand.N(time.Second)))
}

// bundle runs the command as a bundle.
func (s *site) bundle(ctx context.Context, args ...string) times {
	s.waitIdle(ctx)
	start := time.Now()
	uuid := s.cl(ctx, append(append([]string{"run", "--request-queue", "cpu"}, args...), stamp)...)
	s.cl(ctx, "wait", uuid)
	end := time.Now()
	printed := s.cl(ctx, "cat", uuid+"/stdout")
	job := ""
	for line := range strings.Lines(s.run(ctx, "squeue", "--me", "--states=all", "--noheader", "--format=%A %k")) {
		if strings.Contains(line, "bundle="+uuid) {
			job, _, _ = strings.Cut(line, " ")
		}
	}
	return newTimes(start, end, printed, job)
}

func newTimes(start, end time.Time, printed, job string) times {
	first := parseStamp(printed)
	return times{first: first.Sub(start).Seconds(), end: end.Sub(start).Seconds(), held: first.Sub(allocated(job)).Seconds()}
}

// allocated returns the time at which slurmctld gave a job its node, from its log.
func allocated(job string) time.Time {
	data := must(os.ReadFile(filepath.Join(testsite.Base, "cluster/log/slurmctld.log")))
	line := regexp.MustCompile(`\[(\S+)\] sched[^\n]*: (?:Allocate|_start_job: Started) JobId=` + regexp.QuoteMeta(job) + ` `)
	all := line.FindAllSubmatch(data, -1)
	if len(all) == 0 {
		check(fmt.Errorf("slurmctld's log has no allocation of job %q", job))
	}
	return must(time.ParseInLocation("2006-01-02T15:04:05.000", string(all[len(all)-1][1]), time.Local))
}

// bareScript runs a command in a container with the programs that every node has:
// one user namespace, squashfuse, an overlay, bubblewrap.
const bareScript = `#!/bin/sh
exec unshare -Urm sh -c '
d=$(mktemp -d); mkdir $d/lower $d/upper $d/work $d/merged
squashfuse_ll -f -o offset=%d %s $d/lower & fuse=$!
while ! mountpoint -q $d/lower; do :; done
mount -t overlay -o lowerdir=$d/lower,upperdir=$d/upper,workdir=$d/work,userxattr overlay $d/merged
bwrap --bind $d/merged / --proc /proc --dev /dev --unshare-pid --die-with-parent --clearenv --setenv PATH /usr/bin:/bin sh -c "%s"
: > %s; umount $d/merged; kill $fuse; chmod -R u+rwx $d; rm -rf $d'
`

// bareJob runs the command as a bare job. export is sbatch's option; with NONE, slurmd runs a login shell first.
func (s *site) bareJob(ctx context.Context, export string) times {
	s.runs++
	base := filepath.Join(s.Dir, "home", "bare"+strconv.Itoa(s.runs))
	script := fmt.Sprintf(bareScript, must(sifconfig.Read(s.sif)).Offset, s.sif, stamp, base+".end")
	check(os.WriteFile(base+".sh", []byte(script), 0o644))
	s.waitIdle(ctx)
	start := time.Now()
	job := s.run(ctx, "sbatch", "--parsable", "--export="+export, "--partition=cpu", "--account=lab", "--mem=200", "--output="+base+".out", base+".sh")
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ended := false; !ended; {
		check(pause.For(waiting, 5*time.Millisecond))
		_, err := os.Stat(base + ".end")
		ended = err == nil
	}
	return newTimes(start, time.Now(), string(must(os.ReadFile(base+".out"))), job)
}
