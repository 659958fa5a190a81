package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// benchServer measures cl-server as users and workers meet it: as a process of its own, over TCP on
// loopback, with SQLite. Its files are on the disk of TMPDIR, with two exceptions in memory: the database
// of searches, because a server that has run for a while has it in memory, and the 100,000 small files,
// because any program may take minutes to make them on a disk.
//
// This program, which sends the requests, shares the processors with the server.
func benchServer(ctx context.Context) {
	measureSections([]section{
		{"requests", onDisk, func(dir string) { benchRequests(ctx, dir) }},
		{"workers", onDisk, func(dir string) { benchWorkers(ctx, dir) }},
		{"use", onDisk, func(dir string) { benchUse(ctx, dir) }},
		{"lifecycles", onDisk, func(dir string) { benchLifecycles(ctx, dir) }},
		{"large", onDisk, func(dir string) { benchLargeFile(ctx, dir) }},
		{"small", inMemory, func(dir string) { benchSmallFiles(ctx, dir) }},
		{"search", inMemory, func(dir string) { benchSearch(ctx, dir) }},
		{"values", inMemory, func(dir string) { benchValues(ctx, dir) }},
	})
}

// atOnce is the number of concurrent clients.
const atOnce = 16

// benchRequests measures the number of requests of one user that the server answers in a second.
func benchRequests(ctx context.Context, dir string) {
	token := makeUsers(ctx, dir)["ann"]
	s := startServer(ctx, dir)
	defer s.end()
	user := newCoreUser(ctx, signedIn(s.address, token), "python:3")
	var gets [][]byte
	for range 200 {
		gets = append(gets, request(http.MethodGet, "/rest/bundles/"+must(user.create(ctx, "cpu")), token, nil))
	}
	post := request(http.MethodPost, "/rest/bundles?worksheet="+user.worksheet, token, newRuns(1))
	most := func(name string, base float64, next func(i int) []byte) {
		const times = 20
		figure{
			name: "server/" + name, value: s.rate(ctx, next), unit: "/s", against: stock, base: base,
			bar: times * base, barText: fmt.Sprintf("%dx=%g", times, times*base), atLeast: true,
		}.print()
	}
	most("get_bundle", stockGetBundle, func(i int) []byte { return gets[i%len(gets)] })
	most("post_run", stockPostRun, func(int) []byte { return post })
}

// rate returns the number of requests that the server answers in a second. Each client keeps its
// connection. next returns the i-th request of a client.
func (s clServer) rate(ctx context.Context, next func(i int) []byte) float64 {
	var callers []*caller
	defer func() {
		for _, c := range callers {
			_ = c.Close() // all answers have come
		}
	}()
	for range atOnce {
		callers = append(callers, must(dial(ctx, s.address, nil)))
	}
	return perSecond(func(client, i int) error { return callers[client].call(next(i)) })
}

// newRuns is the body of a request for n runs.
func newRuns(n int) []byte {
	var objects []codalab.Object
	for range n {
		objects = append(objects, codalab.NewObject("bundles", "", map[string]any{
			"bundle_type": codalab.TypeRun, "command": benchCommand, "dependencies": []string{},
			"metadata": benchMetadata(codalab.TypeRun, map[string]any{"name": "train", "description": "a run of the benchmark"}),
		}))
	}
	return must(json.Marshal(codalab.NewDocument(objects)))
}
