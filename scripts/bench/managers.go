package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// benchManagers measures cl-worker-manager in the cluster of scripts/kubernetes. It needs root, as benchWorker does, and
// the environment of "scripts/kubernetes env".
func benchManagers(ctx context.Context) {
	if os.Getenv("CLTEST_KUBERNETES") == "" {
		fmt.Println(`bench: workers in pods are not measured: scripts/kubernetes up, then eval "$(scripts/kubernetes env)"`)
		return
	}
	onShared := func() string { return must(os.MkdirTemp(testsite.Base, "bench-managers-")) }
	measureSections([]section{
		{"pods", onShared, func(dir string) { benchPods(ctx, dir) }},
		{"fleet", onShared, func(dir string) { benchFleet(ctx, dir) }},
	})
}

// pods is a namespace of the cluster.
type pods struct{ namespace string }

func makeNamespace(ctx context.Context) pods {
	k := pods{"bench-" + strings.ToLower(rand.Text()[:12])}
	kubectl(ctx, "", "create", "namespace", k.namespace)
	return k
}

// remove removes the namespace with all that is in it.
func (k pods) remove(ctx context.Context) {
	k.call(ctx, "", "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
	kubectl(ctx, "", "delete", "namespace", k.namespace, "--wait=false")
}

// call runs kubectl in the namespace.
func (k pods) call(ctx context.Context, in string, args ...string) string {
	return kubectl(ctx, in, append([]string{"--namespace", k.namespace}, args...)...)
}

// running counts the running pods.
func (k pods) running(ctx context.Context) int {
	return strings.Count(k.call(ctx, "", "get", "pods", "--field-selector=status.phase=Running", "--output=name"), "\n")
}

func kubectl(ctx context.Context, in string, args ...string) string {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(in)
	return output(cmd)
}

const (
	// fleetWatch is the time in which requests are counted; fleetStart bounds the start of all workers.
	fleetWatch = 30 * time.Second
	fleetStart = 3 * time.Minute
)

// benchFleet measures an idle manager with 0, 10 and 1,000 workers on made-up nodes, whose pods run nothing: its requests
// to the cluster in a minute, its memory and its share of a processor, and a look at all workers by status.
func benchFleet(ctx context.Context, dir string) {
	l := startLab(ctx, dir, "127.0.0.1")
	defer l.end()
	script := os.Getenv("CLTEST_KUBERNETES")
	check(exec.CommandContext(ctx, script, "fake-nodes", "8").Run())
	defer func() { _ = exec.Command(script, "fake-nodes", "0").Run() }() // the next call repeats it
	address, requests, stop := countedCluster(ctx)
	defer stop()
	var atZero float64
	for _, workers := range []int{0, 10, 1000} {
		k := makeNamespace(ctx)
		args := []string{
			"--server", l.address, "--min-workers", fmt.Sprint(workers), "--max-workers", fmt.Sprint(workers), "--worker-image", "none.example/none:1", "kubernetes",
			"--cluster-host", address, "--auth-token", "none", "--namespace", k.namespace, "--node-selector", "type=kwok", "--toleration", "kwok.x-k8s.io/node",
			"--memory-mb", "64", "--password-file", l.passwordFile(),
		}
		began, sent := time.Now(), requests.Load()
		manager := l.startProgram(ctx, "cl-worker-manager", args...)
		within, cancel := context.WithTimeout(ctx, fleetStart)
		for k.running(within) < workers {
			check(pause.For(within, 200*time.Millisecond))
		}
		cancel()
		started := time.Since(began)
		if n := requests.Load() - sent; n < int64(workers) {
			check(fmt.Errorf("%d requests were counted, and %d workers started", n, workers))
		}
		check(pause.For(ctx, 10*time.Second)) // until it has seen them
		before, used := requests.Load(), manager.cpu()
		check(pause.For(ctx, fleetWatch))
		perMinute := float64(requests.Load()-before) / fleetWatch.Minutes()
		load := (manager.cpu() - used) / fleetWatch.Seconds() * 100
		f := figure{name: fmt.Sprint("managers/idle_requests_", workers), value: perMinute, unit: "/min", bar: 6}
		if workers == 0 {
			atZero = perMinute
		} else {
			f.bar, f.barText = atZero+1, fmt.Sprintf("at_0+1=%.3g", atZero+1)
		}
		f.print()
		if workers == 1000 {
			figure{name: "managers/start_1000", value: started.Seconds(), unit: "s"}.print()
			figure{name: "managers/memory_1000", value: residentMB(manager.pid), unit: "MB", bar: 100}.print()
			figure{name: "managers/cpu_1000", value: load, unit: "%", bar: 5}.print()
			looked := time.Now()
			l.status(ctx, args)
			figure{name: "managers/status_1000", value: time.Since(looked).Seconds(), unit: "s", bar: 3}.print()
			l.benchPass(ctx, address, k, workers)
		}
		manager.end()
		k.remove(ctx)
	}
}

// status runs the status command of a manager with these arguments.
func (l *workerLab) status(ctx context.Context, args []string) {
	check(l.startProgram(ctx, "cl-worker-manager", append(args, "status")...).cmd.Wait())
}

// countedCluster serves the cluster at an address of this host, and counts the requests there.
func countedCluster(ctx context.Context) (address string, requests *atomic.Int64, stop func()) {
	proxy := exec.CommandContext(ctx, "kubectl", "proxy", "--port=0")
	out := must(proxy.StdoutPipe())
	check(proxy.Start())
	var said string
	for buffer := make([]byte, 256); !strings.HasSuffix(said, "\n"); {
		n, err := out.Read(buffer)
		check(err)
		said += string(buffer[:n])
	}
	to := must(url.Parse("http://" + strings.TrimSpace(said[strings.LastIndex(said, " ")+1:])))
	requests = &atomic.Int64{}
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("Authorization") // kubectl adds its own
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		forward.ServeHTTP(w, r)
	}))
	return server.URL, requests, func() {
		server.CloseClientConnections()
		server.Close()
		_ = proxy.Process.Kill() // it may have ended
		_ = proxy.Wait()         // it was killed
	}
}
