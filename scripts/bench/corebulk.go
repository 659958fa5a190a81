package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// benchBulk measures a thousand runs of one user that one request makes, until the last one is ready. Their jobs end at
// once, so that the claims, the preparations and the results are what takes time. The bridge is a process of its own. The
// server, Slurm and the workers are this process.
func benchBulk(ctx context.Context, dir, images, image string) {
	const rounds, runs, hold = 3, 1000, 5 * time.Second
	address, server, stop := serveCore(ctx, filepath.Join(dir, "server"), hold)
	defer stop()
	user := newCoreUser(ctx, ann(address, nil), image)
	slurm := newCoreSlurm(ctx, 1, time.Millisecond)
	defer slurm.end()
	defer serveSlurm(ctx, dir, slurm)()
	b := startPart(ctx, "core-bridge", dir, images, address)
	defer b.end()
	user.createInBulk(ctx, 1)
	user.awaitReady(ctx, 1) // the bridge has seen Slurm, and knows the image
	var rates, ofBridge, ofServer, requests []float64
	for round := range rounds {
		cpu, own := b.cpu(), ownCPU()
		server.requests.reset()
		took := seconds(func() {
			user.createInBulk(ctx, runs)
			user.awaitReady(ctx, 1+(round+1)*runs)
		})
		rates = append(rates, runs/took)
		ofBridge = append(ofBridge, (b.cpu()-cpu)/runs*1000)
		ofServer = append(ofServer, (ownCPU()-own)/runs*1000)
		requests = append(requests, float64(server.requests.print())/runs)
	}
	figure{name: "core/bulk", value: median(rates), unit: "/s"}.print()
	figure{name: "core/bulk_bridge_cpu", value: median(ofBridge), unit: "ms/run"}.print()
	figure{name: "core/bulk_server_cpu", value: median(ofServer), unit: "ms/run"}.print() // with Slurm and the workers
	figure{name: "core/bulk_requests", value: median(requests), unit: "/run"}.print()
}

// createInBulk makes bundles with one request.
func (u coreUser) createInBulk(ctx context.Context, n int) {
	m := benchMetadata(codalab.TypeRun, map[string]any{"name": "train", "request_queue": "cpu", "request_docker_image": u.image, "description": "a run of the benchmark"})
	list := slices.Repeat([]client.NewBundle{{Worksheet: u.worksheet, Type: codalab.TypeRun, Command: benchCommand, Metadata: m}}, n)
	must(u.CreateBundles(ctx, list))
}

// awaitReady waits until that many bundles are ready.
func (u coreUser) awaitReady(ctx context.Context, n int) {
	for {
		_, number, err := u.SearchBundles(ctx, "", []string{"state=ready", ".count"})
		check(err)
		var ready json.Number
		check(json.Unmarshal(number, &ready))
		if ready.String() == strconv.Itoa(n) {
			return
		}
		check(pause.For(ctx, 100*time.Millisecond))
	}
}

// requestCounts counts the requests that a server receives from workers, by method and path.
type requestCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *requestCounts) add(r *http.Request) {
	variable := regexp.MustCompile(`0x[0-9a-f]{32}`)
	kind := r.Method + " " + variable.ReplaceAllString(strings.TrimPrefix(r.URL.Path, "/rest"), "UUID")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[kind]++
}

func (c *requestCounts) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = nil
}

// print prints the counts to standard error, and returns the sum of those of workers: all but those of users' routes.
func (c *requestCounts) print() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(c.of)) {
		if strings.HasSuffix(kind, " /bundles") { // the user's
			continue
		}
		sum += c.of[kind]
		fmt.Fprintf(os.Stderr, "bench: %d × %s\n", c.of[kind], kind)
	}
	return sum
}
