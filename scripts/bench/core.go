package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// benchCore measures the bridge at the sizes for which it is made, and the server's part of them:
// reports of live runs, 10,000 bundles in flight, and 100,000 bundles in a day. All files are in
// memory, as a flush of a disk takes milliseconds, and each bundle has some ten.
func benchCore(ctx context.Context) {
	images := onDisk()                          // a bridge takes no images from /dev
	defer func() { _ = os.RemoveAll(images) }() // a leftover has no meaning
	image := makeSIF(ctx, images)
	measureSections([]section{
		{"reports", inMemory, func(dir string) { benchReports(ctx, dir) }},
		{"in_flight", inMemory, func(dir string) { benchInFlight(ctx, dir, images, image) }},
		{"bulk", inMemory, func(dir string) { benchBulk(ctx, dir, images, image) }},
		{"day", inMemory, func(dir string) { benchDay(ctx, dir, images, image) }},
	})
}

// inFlight returns the number of bundles in flight; ten times as many end in a day.
func inFlight() int {
	if n := os.Getenv("BUNDLES"); n != "" {
		return must(strconv.Atoi(n))
	}
	return 10_000
}

// benchInFlight measures a bridge that has 10,000 bundles in flight, in real time. The bridge is a
// process of its own; the figures are of that process. The server and its user, Slurm and the workers
// are this process. Nothing is accelerated, except that Slurm takes a thousand submissions a second.
func benchInFlight(ctx context.Context, dir, images, image string) {
	const few, watched = 1000, 45 * time.Second
	many := inFlight()
	address, server, stop := serveCore(ctx, filepath.Join(dir, "server"), 0)
	defer stop()
	user := newCoreUser(ctx, ann(address, nil), image)
	slurm := newCoreSlurm(ctx, 1, 0)
	defer slurm.end()
	defer serveSlurm(ctx, dir, slurm)()
	b := startPart(ctx, "core-bridge", dir, images, address)
	defer b.end()
	fill := func(n int) {
		user.createMany(ctx, n-server.running(), "cpu")
		for server.running() < n {
			check(pause.For(ctx, 50*time.Millisecond))
		}
		check(pause.For(ctx, 10*time.Second)) // for the snapshots and check-ins that follow
	}
	fill(min(few, many))
	opsOfFew := b.sharedOps(ctx, dir)
	took := seconds(func() { fill(many) })
	figure{name: "core/fill_10000", value: float64(many-few) / took, unit: "/s"}.print()
	server.silence()
	cpu := b.cpu()
	check(pause.For(ctx, watched))
	cpu, silence := b.cpu()-cpu, server.silence()
	opsOfMany := b.sharedOps(ctx, dir)
	check(b.cmd.Process.Signal(syscall.SIGUSR1))
	check(pause.For(ctx, 10*time.Second)) // for the sweep
	figure{name: "core/memory_10000", value: b.memory(), unit: "MB", bar: 200}.print()
	figure{name: "core/cpu_10000", value: cpu / watched.Seconds() * 100, unit: "%", bar: 5}.print()
	figure{name: "core/silence_10000", value: silence.Seconds(), unit: "s", bar: 60}.print()
	if opsOfFew > 0 {
		const most = 1.1
		figure{
			name: "core/shared_ops_10000", value: opsOfMany, unit: "/min", against: "shared_ops_1000", base: opsOfFew,
			bar: most * opsOfFew, barText: fmt.Sprintf("%gx=%.3g", most, most*opsOfFew),
		}.print()
	}
}

// serveCore serves a CodaLab server on loopback.
func serveCore(ctx context.Context, dir string, hold time.Duration) (address string, listener *checkInRecorder, stop func()) {
	s := openServer(ctx, dir, hold)
	l := must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	listener = recordCheckIns(s.handler)
	site := &http.Server{Handler: listener, ReadHeaderTimeout: time.Minute}
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return s.service.Run(ctx) })
	group.Go(func() error { return site.Serve(l) })
	return "http://" + l.Addr().String(), listener, func() {
		cancel()
		_ = site.Close()
		_ = group.Wait() // its context has ended
		check(s.data.Close())
	}
}

// saveMemory lets the heap grow as that of cl-bridge run does.
func saveMemory() { debug.SetGCPercent(50) }

// runCoreBridge is the part core-bridge: a bridge that works until a signal comes. At SIGUSR1 it sweeps,
// as it does once an hour.
func runCoreBridge(ctx context.Context, dir, images, server string) {
	saveMemory()
	b := openCore(ctx, dir, images, server, nil, dialSlurm(dir))
	b.bridge.Pace = bridge.Pace{PerSecond: 1000, Burst: 1000}
	due := make(chan os.Signal, 1)
	signal.Notify(due, syscall.SIGUSR1)
	background.Detach(func() { // ends with this process
		for range due {
			must(b.sweeps.Sweep(ctx))
		}
	})
	fmt.Println("begins")
	b.run(ctx)
}

// sharedOps returns the number of metadata operations a minute that a part does on the shared disk below
// dir.
func (p part) sharedOps(ctx context.Context, dir string) float64 {
	const watched = 12 * time.Second
	n := countOps(p.pid, dir, func() { check(pause.For(ctx, watched)) })
	return float64(n) / watched.Minutes()
}

// countOps counts the metadata operations of a process on the shared disk below dir during a call:
// system calls that name a file there, or list a directory. strace counts them; without strace the
// number is 0. It may be called in a synctest bubble.
func countOps(pid int, dir string, during func()) (n int) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: operations on the shared disk are not counted: there is no strace on PATH")
		during()
		return 0
	}
	trace := filepath.Join(dir, "trace")
	cmd := exec.Command(strace, "-f", "-y", "-e", "trace=%file,getdents64", "-o", trace, "-p", strconv.Itoa(pid))
	words := must(cmd.StderrPipe())
	check(cmd.Start())
	for line, begins := "", bufio.NewScanner(words); !strings.Contains(line, "attached"); line = begins.Text() {
		if !begins.Scan() {
			check(errors.Join(fmt.Errorf("strace ended: %s", line), cmd.Wait()))
		}
	}
	failed := attempt(during)
	_ = cmd.Process.Signal(os.Interrupt) // it ends by that
	_ = cmd.Wait()
	check(failed)
	for line := range bytes.Lines(must(os.ReadFile(trace))) {
		if bytes.Contains(line, []byte(filepath.Join(dir, "shared"))) && !bytes.Contains(line, []byte("resumed>")) {
			n++
		}
	}
	return n
}
