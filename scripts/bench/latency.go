package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// pairs is how many runs a median is taken of.
const pairs = 15

// benchMain measures the way of one small bundle, beside a bare sbatch of the
// same command in the same container, on an otherwise idle cluster.
func benchMain(ctx context.Context, out io.Writer) (err error) {
	site, err := testsite.Start(ctx, testsite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	b := &mainBench{site: site}
	if err := b.warm(ctx); err != nil {
		return err
	}
	var ours, bare []times
	for range pairs {
		o, err := b.bundle(ctx)
		if err != nil {
			return err
		}
		s, err := b.sbatch(ctx)
		if err != nil {
			return err
		}
		ours, bare = append(ours, o), append(bare, s)
	}
	startUp, err := b.startUp(ctx)
	if err != nil {
		return err
	}
	first := func(t times) float64 { return t.first }
	end := func(t times) float64 { return t.end }
	figures := []figure{
		compared("main/first_instruction", ours, bare, first, 0.4),
		compared("main/ready", ours, bare, end, 0.9),
		{
			name: "main/allocation_before_command", value: medianOf(ours, func(t times) float64 { return t.held }),
			unit: "s", against: "bare_sbatch", base: medianOf(bare, func(t times) float64 { return t.held }), bar: 0.3, barText: "0.3",
		},
		{name: "main/cl_start", value: startUp * 1000, unit: "ms", bar: 20, barText: "20"},
	}
	for _, f := range figures {
		if err := f.print(out); err != nil {
			return err
		}
	}
	return nil
}

// times are seconds of one run: until its first instruction and until its end
// was seen, both from the command that started it; and how much of the
// allocation went by before its first instruction.
type times struct{ first, end, held float64 }

func medianOf(runs []times, of func(times) float64) float64 {
	values := make([]float64, len(runs))
	for i, t := range runs {
		values[i] = of(t)
	}
	return median(values)
}

func compared(name string, ours, bare []times, of func(times) float64, margin float64) figure {
	base := medianOf(bare, of)
	return figure{
		name: name, value: medianOf(ours, of), unit: "s", against: "bare_sbatch", base: base,
		bar: base + margin, barText: fmt.Sprintf("bare+%g=%.3g", margin, base+margin),
	}
}

type mainBench struct {
	site *testsite.Site
	sif  string
	runs int
}

// warm brings the image in, and finds it.
func (b *mainBench) warm(ctx context.Context) error {
	if _, err := b.bundle(ctx); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(b.site.Shared, "cache/sif/*/*/content"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find the image's SIF: %v, %w", found, err)
	}
	b.sif = found[0]
	return nil
}

// stamp is the command that is measured: it prints the time. A command for cl
// has no "%" of its own, which names bundles there.
const stamp = "date --rfc-3339=ns"

func now() float64 { return seconds(time.Now()) }

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// idle waits until the cluster is idle, and then for a moment that differs
// from run to run: Slurm looks for jobs to start once a second, and neither
// side of a pair may have the better place in that.
func (b *mainBench) idle(ctx context.Context) error {
	for {
		jobs, err := b.site.Run(ctx, "squeue", "--noheader", "--states=PD,R,CG", "--format=%A")
		if err != nil {
			return err
		}
		moment := 100 * time.Millisecond
		if jobs == "" {
			moment = time.Second + rand.N(time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(moment):
		}
		if jobs == "" {
			return nil
		}
	}
}

// bundle runs the command as a bundle.
func (b *mainBench) bundle(ctx context.Context, args ...string) (times, error) {
	if err := b.idle(ctx); err != nil {
		return times{}, err
	}
	start := now()
	uuid, err := b.site.CL(ctx, append(append([]string{"run", "--request-queue", "cpu"}, args...), stamp)...)
	if err != nil {
		return times{}, err
	}
	if _, err := b.site.CL(ctx, "wait", uuid); err != nil {
		return times{}, err
	}
	end := now()
	printed, err := b.site.CL(ctx, "cat", uuid+"/stdout")
	if err != nil {
		return times{}, err
	}
	job, err := b.site.Run(ctx, "squeue", "--me", "--states=all", "--noheader", "--format=%A %k")
	if err != nil {
		return times{}, err
	}
	id := ""
	for line := range strings.Lines(job) {
		if strings.Contains(line, "bundle="+uuid) {
			id, _, _ = strings.Cut(line, " ")
		}
	}
	return measured(start, end, printed, id)
}

func measured(start, end float64, printed, job string) (times, error) {
	at, err := time.Parse("2006-01-02 15:04:05.999999999Z07:00", strings.TrimSpace(printed))
	if err != nil {
		return times{}, fmt.Errorf("read the command's time: %w", err)
	}
	first := seconds(at)
	allocated, err := allocation(job)
	if err != nil {
		return times{}, err
	}
	return times{first: first - start, end: end - start, held: first - allocated}, nil
}

// allocation is when slurmctld gave a job its node, from its log.
func allocation(job string) (float64, error) {
	data, err := os.ReadFile(filepath.Join(testsite.Base, "cluster/log/slurmctld.log"))
	if err != nil {
		return 0, fmt.Errorf("read allocation: %w", err)
	}
	line := regexp.MustCompile(`\[(\S+)\] sched[^\n]*: (?:Allocate|_start_job: Started) JobId=` + regexp.QuoteMeta(job) + ` `)
	all := line.FindAllSubmatch(data, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("slurmctld's log does not tell when job %q got its node", job)
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05.000", string(all[len(all)-1][1]), time.Local)
	if err != nil {
		return 0, fmt.Errorf("read allocation: %w", err)
	}
	return seconds(at), nil
}

// bareScript runs the command in the same container by what every node has:
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

// sbatch runs the command as a bare job.
func (b *mainBench) sbatch(ctx context.Context) (times, error) {
	b.runs++
	base := filepath.Join(b.site.Dir, "home", "bare"+strconv.Itoa(b.runs))
	image, err := sifconfig.Read(b.sif)
	if err != nil {
		return times{}, err
	}
	script := fmt.Sprintf(bareScript, image.Offset, b.sif, stamp, base+".end")
	if err := os.WriteFile(base+".sh", []byte(script), 0o644); err != nil {
		return times{}, fmt.Errorf("write script: %w", err)
	}
	if err := b.idle(ctx); err != nil {
		return times{}, err
	}
	start := now()
	job, err := b.site.Run(ctx, "sbatch", "--parsable", "--partition=cpu", "--account=lab", "--mem=200", "--output="+base+".out", base+".sh")
	if err != nil {
		return times{}, err
	}
	if err := seen(ctx, base+".end"); err != nil {
		return times{}, fmt.Errorf("wait for bare job %s: %w", job, err)
	}
	end := now()
	printed, err := os.ReadFile(base + ".out")
	if err != nil {
		return times{}, fmt.Errorf("read bare job's output: %w", err)
	}
	return measured(start, end, string(printed), job)
}

// seen waits until a file is there.
func seen(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// startUp is how long the researcher's command takes to do nothing.
func (b *mainBench) startUp(ctx context.Context) (float64, error) {
	var values []float64
	for range pairs {
		start := now()
		if _, err := b.site.CL(ctx, "--version"); err != nil {
			return 0, err
		}
		values = append(values, now()-start)
	}
	return median(values), nil
}
