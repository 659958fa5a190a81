package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// benchWorker measures the stand-alone cl-worker and the workers of cl-worker-manager, on cl-server, with
// the image in the cache, and CodaLab's own worker on the same server if there is one. The programs share
// the processors. It needs root, because its workers run as researcher.
func benchWorker(ctx context.Context) {
	if len(stockWorker()) == 0 {
		fmt.Println("bench: cl-worker is not compared with CodaLab's own: CLTEST_STOCK_WORKER names none")
	}
	onShared := func() string { return must(os.MkdirTemp(testsite.Base, "bench-worker-")) }
	measureSections([]section{
		{"runs", onShared, func(dir string) { benchWorkerRuns(ctx, dir) }},
		{"writes", onShared, func(dir string) { benchWorkerWrites(ctx, dir) }},
		{"reads", onShared, func(dir string) { benchWorkerReads(ctx, dir) }},
		{"rate", onShared, func(dir string) { benchWorkerRate(ctx, dir) }},
		{"idle", onShared, func(dir string) { benchWorkerIdle(ctx, dir) }},
		{"pilots", onShared, func(dir string) { benchPilots(ctx, dir) }},
	})
}

// stockWorker is the command of CodaLab's own worker, to which an address, a user, a password and arguments
// are added; nil if there is none. It needs a Docker engine at DOCKER_HOST.
func stockWorker() []string { return strings.Fields(os.Getenv("CLTEST_STOCK_WORKER")) }

const (
	// stockWorkerName is the name of CodaLab's own worker in a figure.
	stockWorkerName = "codalab_cl-worker"
	// ownTag and stockTag are the tags of our worker and of CodaLab's own.
	ownTag, stockTag = "own", "stock"
)

// workerLab is a cl-server with a user, ann, and an image for her runs.
type workerLab struct {
	clServer

	dir       string
	as        *syscall.Credential // of workers
	user      coreUser
	endServer func()
}

// labHost returns the address of servers that nodes do not call. Registries of several processes have port
// 80 there: CodaLab's own worker takes no image with another port in its name
// (codalab/worker/docker_image_manager.py: _image_availability_state).
func labHost() string {
	pid := os.Getpid()
	return net.IPv4(127, 77, byte(pid>>8), byte(pid)).String()
}

// startLab starts a server at an address of this host, and a registry at labHost.
func startLab(ctx context.Context, dir, host string) *workerLab {
	l := &workerLab{dir: dir, as: researcherAccount()}
	check(errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(l.as.Uid), int(l.as.Gid))))
	data, kept := filepath.Join(dir, "data"), filepath.Join(dir, "image")
	img := makeImage(ctx, recipe{programs: []string{"/bin/bash", "/bin/sh", "/bin/date", "/bin/sleep", "/bin/true"}}, kept)
	image, stop, err := testsite.ServeImageAt(ctx, net.JoinHostPort(labHost(), "80"), layoutBlobs{kept}, "bench/worker:1", img)
	check(err)
	token := makeUsers(ctx, data)["ann"]
	l.clServer = startServerAt(ctx, data, host)
	l.user = newCoreUser(ctx, signedIn(l.address, token), image)
	l.endServer = func() { l.clServer.end(); stop() }
	login := l.passwordFile()
	check(os.WriteFile(login, []byte("ann\n"+corePassword+"\n"), 0o600))
	check(os.Chown(login, int(l.as.Uid), int(l.as.Gid)))
	return l
}

func (l *workerLab) passwordFile() string { return filepath.Join(l.dir, "login") }

// authority returns the path of the certificate of the nodes' registry.
func (l *workerLab) authority() string { return filepath.Join(l.dir, "authority.pem") }

// researcherAccount is the user of the workers.
func researcherAccount() *syscall.Credential {
	u := must(user.Lookup(testsite.User))
	return &syscall.Credential{Uid: uint32(must(strconv.ParseUint(u.Uid, 10, 31))), Gid: uint32(must(strconv.ParseUint(u.Gid, 10, 31)))}
}

// startProgram starts a program of this program's directory as researcher. Its log is a file NAME.log.
func (l *workerLab) startProgram(ctx context.Context, name string, args ...string) part {
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(must(os.Executable())), name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: l.as}
	cmd.Env = append(slurmcluster.Chosen().Env(), "HOME="+l.dir, "LANG=C.UTF-8", "SSL_CERT_FILE="+l.authority())
	return l.start(cmd, name)
}

func (l *workerLab) start(cmd *exec.Cmd, name string) part {
	cmd.Dir = l.dir
	log := must(os.OpenFile(filepath.Join(l.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	cmd.Stdout, cmd.Stderr = log, log
	check(cmd.Start())
	check(log.Close())
	return part{cmd: cmd, pid: cmd.Process.Pid}
}

// startWorker starts our worker, and lets it run a bundle, so that it has the image.
func (l *workerLab) startWorker(ctx context.Context, args ...string) part {
	args = append([]string{
		"--server", l.address, "--password-file", l.passwordFile(), "--work-dir", filepath.Join(l.dir, "work"), "--id", ownTag,
		"--tag", ownTag, "--tag-exclusive", "--bundle-runtime", "builtin", "--pass-down-termination",
		"--fetch-private", labHost(),
	}, args...)
	w := l.startProgram(ctx, "cl-worker", args...)
	l.awaitEnd(ctx, l.run(ctx, ownTag, "true"))
	return w
}

// startStockWorker starts CodaLab's own worker in the same way. There must be one, and an engine.
func (l *workerLab) startStockWorker(ctx context.Context) part {
	words := append(stockWorker(), l.address, "ann", corePassword,
		"--work-dir", filepath.Join(l.dir, "stock"), "--id", stockTag, "--tag", stockTag, "--tag-exclusive")
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w := l.start(cmd, stockTag)
	l.awaitEnd(ctx, l.run(ctx, stockTag, "true"))
	return w
}

// endStockWorker ends it at once: its own end takes a check-in.
func endStockWorker(w part) {
	_ = syscall.Kill(-w.pid, syscall.SIGKILL) // it may have ended
	_ = w.cmd.Wait()                          // it was killed
}

// end ends the server.
func (l *workerLab) end() { l.endServer() }

// run makes a run of one CPU for the workers with a tag, and returns its UUID.
func (l *workerLab) run(ctx context.Context, tag, command string) string {
	image := l.user.image
	if tag == stockTag {
		image = strings.Replace(image, ":80/", "/", 1)
	}
	m := benchMetadata(codalab.TypeRun, map[string]any{"name": "run", "request_queue": tag, "request_docker_image": image, "request_memory": "256m"})
	return must(l.user.CreateBundle(ctx, client.NewBundle{Worksheet: l.user.worksheet, Type: codalab.TypeRun, Command: command, Metadata: m})).UUID
}

// runWithin bounds a run of this area.
const runWithin = 90 * time.Second

// awaitEnd waits until a bundle is ready.
func (l *workerLab) awaitEnd(ctx context.Context, uuid string) {
	l.await(ctx, uuid, codalab.StateReady)
}

// await waits until a bundle has a state. It looks fifty times a second.
func (l *workerLab) await(ctx context.Context, uuid string, state codalab.State) {
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for {
		b := must(l.user.Bundle(within, uuid))
		switch {
		case b.State == state:
			return
		case b.State.Final():
			check(fmt.Errorf("the bundle %s is %s: %s", uuid, b.State, b.Metadata.String("failure_message")))
		}
		if pause.For(within, 20*time.Millisecond) != nil {
			check(fmt.Errorf("the bundle %s is %s, and not %s: %s", uuid, b.State, state, b.Metadata.String("run_status")))
		}
	}
}

// quantile returns the smallest value that a part of the values do not exceed.
func quantile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(part*float64(len(sorted))))-1]
}

// besideStockWorker adds to a figure of our worker that of CodaLab's own, if there is one.
func besideStockWorker(f figure, stock []float64, of func([]float64) float64) figure {
	if len(stock) > 0 {
		f.against, f.base = stockWorkerName, of(stock)
	}
	return f
}
