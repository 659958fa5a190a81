package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// benchSlurm measures a bridge with real controllers: its load on one, with many jobs that wait; its reactions to the
// end of a command and to a kill; and a report of many bundles. It needs root and the cluster of scripts/slurm-cluster.
func benchSlurm(ctx context.Context) {
	onShared := func() string { return must(os.MkdirTemp(testsite.Base, "bench-slurm-")) }
	measureSections([]section{
		{"load", inMemory, func(dir string) { benchLoad(ctx, dir) }},
		{"reactions", onShared, func(string) { benchReactions(ctx) }},
		{"report", onDisk, func(dir string) { benchReport(ctx, dir) }},
	})
	fmt.Printf("bench: slurm: load average of this machine at the end: %s", must(os.ReadFile("/proc/loadavg")))
}

// loadWindow is the number of snapshots for which the requests are counted. With the usual pause they take a minute.
const loadWindow = 10

// slurmBench is a bridge on a controller of its own, with jobs that wait for a job that has the only node.
type slurmBench struct {
	cluster *slurmcluster.Bare
	bridge  part
	user    coreUser
	made    int
}

// benchLoad counts the requests of a bridge at a controller whose other users are silent, by sdiag, and measures the
// bridge with 10,000 bundles that wait in Slurm. The bridge is a process of its own, as in benchInFlight, and runs Slurm's
// own commands. Server and user are this process.
func benchLoad(ctx context.Context, dir string) {
	const watched = 36 * time.Second
	images := onDisk()
	defer func() { _ = os.RemoveAll(images) }() // a leftover has no meaning
	image := makeSIF(ctx, images)
	b, stop := startSlurmBench(ctx, dir, images, image)
	defer stop()
	most := inFlight()
	for _, n := range []int{10, most / 10, most / 2} {
		took := seconds(func() { b.fill(ctx, n) })
		figure{name: fmt.Sprintf("slurm/fill_%d", n), value: took, unit: "s"}.print()
		figure{name: fmt.Sprintf("slurm/observation_%d", n), value: b.rate(ctx), unit: "RPC/s", bar: 0.5}.print()
	}
	b.fill(ctx, most)
	own, all := b.bridge.cpu(), treeCPU(b.bridge.pid)
	check(pause.For(ctx, watched))
	own, all = b.bridge.cpu()-own, treeCPU(b.bridge.pid)-all
	figure{name: fmt.Sprintf("slurm/pending_memory_%d", most), value: b.bridge.memory(), unit: "MB", bar: 200}.print()
	figure{name: fmt.Sprintf("slurm/pending_cpu_%d", most), value: own / watched.Seconds() * 100, unit: "%", bar: 5}.print()
	figure{name: fmt.Sprintf("slurm/pending_cpu_%d_with_squeue", most), value: all / watched.Seconds() * 100, unit: "%"}.print()
}

// startSlurmBench starts a controller, a server and a bridge, all of whose jobs will wait.
func startSlurmBench(ctx context.Context, dir, images, image string) (b *slurmBench, stop func()) {
	as := researcherAccount()
	bare, home := filepath.Join(dir, "bare"), filepath.Join(dir, "bridge")
	check(errors.Join(os.Chmod(dir, 0o755), os.Mkdir(bare, 0o755), os.Mkdir(home, 0o755), os.Chown(home, int(as.Uid), int(as.Gid))))
	openToAll(images)
	b = &slurmBench{cluster: must(slurmcluster.StartBare(ctx, bare))}
	address, _, end := serveCore(ctx, filepath.Join(dir, "server"), 0)
	b.user = newCoreUser(ctx, ann(address, nil), image)
	b.command(ctx, "sbatch", "--exclusive", "--time=1-0", "--output=/dev/null", "--chdir=/", "--wrap=sleep 1d")
	b.bridge = startPartAs(ctx, as, "slurm-bridge", home, images, address, b.cluster.Conf)
	return b, func() {
		b.bridge.end()
		end()
		b.command(ctx, "scancel", "--partition="+slurmcluster.BarePartition)
		check(b.cluster.Stop())
	}
}

// openToAll lets all users read a directory.
func openToAll(dir string) {
	check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		mode := os.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	}))
}

// runSlurmBridge is the part slurm-bridge: a bridge of a controller whose slurm.conf this is. It submits faster than
// cl-bridge, so that thousands of jobs are there soon.
func runSlurmBridge(ctx context.Context, dir, images, server, conf string) {
	saveMemory()
	client := &sbatch.Client{Bin: slurmcluster.Chosen().Bin, Conf: conf}
	b := openCore(ctx, dir, images, server, nil, client)
	b.bridge.Pace = bridge.Pace{PerSecond: 1000, Burst: 1000}
	b.bridge.Settings, b.bridge.Turns, b.bridge.Policy.Accounting = client.Settings, client.Turns, false
	fmt.Println("begins")
	b.run(ctx)
}

// command runs a command of Slurm as root.
func (b *slurmBench) command(ctx context.Context, name string, args ...string) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.cluster.Bin, name), args...)
	cmd.Env = b.cluster.Env()
	output(cmd)
}

// fill makes bundles until n jobs wait, and waits for the snapshots and check-ins that follow.
func (b *slurmBench) fill(ctx context.Context, n int) {
	b.user.createMany(ctx, n-b.made, "cpu")
	b.made = n
	for must(b.cluster.Requests(ctx)).ByType["REQUEST_SUBMIT_BATCH_JOB"] <= int64(n) { // one is not the bridge's
		check(pause.For(ctx, 200*time.Millisecond))
	}
	b.awaitSnapshots(ctx, 2)
}

// awaitSnapshots waits for the bridge's n-th next squeue, and returns the requests until then.
func (b *slurmBench) awaitSnapshots(ctx context.Context, n int64) slurmcluster.Requests {
	const snapshot = "REQUEST_JOB_USER_INFO"
	seen := must(b.cluster.Requests(ctx)).ByType[snapshot]
	for {
		now := must(b.cluster.Requests(ctx))
		if now.ByType[snapshot] >= seen+n {
			return now
		}
		check(pause.For(ctx, 200*time.Millisecond))
	}
}

// rate returns the number of requests that the bridge sends in a second, by the user of its commands.
func (b *slurmBench) rate(ctx context.Context) float64 {
	before, began := b.awaitSnapshots(ctx, 1), time.Now()
	after := b.awaitSnapshots(ctx, loadWindow)
	took, asked := time.Since(began), after.Since(before)
	fmt.Printf("bench: slurm: requests with %d jobs in %.1f s: by user %v, by type %v\n", b.made, took.Seconds(), asked.ByUser, asked.ByType)
	return float64(asked.ByUser[testsite.User]) / took.Seconds()
}
