package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// standIn is a cl-worker that runs nothing: it claims each offered run, reports it as successful, and ends when
// it is idle, has run as many runs as its flag allows, or gets TERM. A run's command is the time for which standIn reports it as running. standIn rejects
// flags that CodaLab's own cl-worker does not have (codalab/worker/main.py: parse_args), except our
// --token-file. If its name is stock-worker, it rejects that, too.
func standIn() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if slices.Contains(os.Args[1:], "--help") {
		fmt.Println("usage: cl-worker [--password-file FILE] …")
		if takesToken() {
			fmt.Println("  --token-file FILE")
		}
		return
	}
	if err := runStandIn(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "cl-worker:", err)
		os.Exit(1)
	}
	if ctx.Err() != nil {
		fmt.Println("the worker got TERM")
	}
}

func takesToken() bool { return filepath.Base(os.Args[0]) != "stock-worker" }

type standInFlags struct {
	server, id, tag, password, token string
	idle                             time.Duration
	runs                             int // the number of runs after which it ends
}

func parseStandIn(args []string) (standInFlags, error) {
	var f standInFlags
	flags := flag.NewFlagSet("cl-worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&f.server, "server", "", "")
	flags.StringVar(&f.id, "id", "", "")
	flags.StringVar(&f.tag, "tag", "", "")
	flags.StringVar(&f.password, "password-file", "", "")
	if takesToken() {
		flags.StringVar(&f.token, "token-file", "", "")
	}
	idle := flags.Int("idle-seconds", 0, "")
	flags.IntVar(&f.runs, "exit-after-num-runs", codalab.UnlimitedRuns, "")
	for _, name := range []string{"work-dir", "network-prefix", "cpuset", "gpuset", "max-work-dir-size", "group", "ws-server", "max-memory"} {
		flags.String(name, "", "")
	}
	for _, name := range []string{"checkin-frequency-seconds", "download-dependencies-max-retries", "shared-memory-size-gb"} {
		flags.Int(name, 0, "")
	}
	for _, name := range []string{"verbose", "exit-when-idle", "tag-exclusive", "pass-down-termination", "delete-work-dir-on-exit", "exit-on-exception", "preemptible"} {
		flags.Bool(name, false, "")
	}
	err := flags.Parse(args)
	f.idle = time.Duration(*idle) * time.Second
	return f, err
}

func (f standInFlags) connect() (*client.Client, error) {
	if token := os.Getenv("CODALAB_WORKER_TOKEN"); token != "" {
		return client.New(f.server, client.Options{Token: func(context.Context) (string, error) { return token, nil }})
	}
	if f.token != "" {
		return client.New(f.server, client.Options{Token: func(context.Context) (string, error) { return account.ReadToken(f.token) }})
	}
	l, err := account.ReadFile(f.password)
	if err != nil {
		return nil, err
	}
	return client.New(f.server, client.Options{Credentials: l.Credentials})
}

func runStandIn(ctx context.Context, args []string) error {
	f, err := parseStandIn(args)
	if err != nil {
		return err
	}
	api, err := f.connect()
	if err != nil {
		return err
	}
	runs := map[string]codalab.RunReport{}
	for idleSince := time.Now(); len(runs) > 0 || f.runs > int(claimed.Load()) && time.Since(idleSince) < f.idle; {
		in := codalab.CheckIn{
			Tag: f.tag, CPUs: 1, MemoryBytes: 2 << 30, FreeDiskBytes: 1 << 40, Hostname: "n1", Dependencies: [][2]string{}, Reports: []codalab.RunReport{},
			ExitAfterNumRuns: int64(f.runs) - claimed.Load(),
		}
		for _, r := range runs {
			in.Reports = append(in.Reports, r)
		}
		within, cancel := context.WithCancel(ctx)
		var timer *time.Timer
		if len(runs) > 0 { // the server holds a check-in that says nothing new
			timer = time.AfterFunc(200*time.Millisecond, cancel)
		}
		messages, err := api.CheckIn(within, f.id, in)
		if timer != nil {
			timer.Stop()
		}
		interrupted := within.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !interrupted:
			return err
		}
		for _, m := range messages {
			if err := handle(ctx, api, f.id, m, runs); err != nil {
				return err
			}
			idleSince = time.Now()
		}
	}
	return nil
}

var claimed atomic.Int64 // runs of this worker

func handle(ctx context.Context, api *client.Client, id string, m codalab.Message, runs map[string]codalab.RunReport) error {
	switch m.Type {
	case codalab.MessageRun:
		uuid := m.Bundle.UUID
		ok, err := api.StartBundle(ctx, id, uuid, codalab.StartBundle{Hostname: "n1", StartTime: time.Now().Unix()})
		if err != nil || !ok {
			return err
		}
		fmt.Printf("the worker takes %s, its run number %d\n", uuid, claimed.Add(1))
		r := codalab.RunReport{UUID: uuid, State: codalab.StateRunning, Remote: id, Profile: map[string]codalab.StageTimes{}}
		for _, stage := range codalab.Stages() {
			r.Profile[stage] = codalab.StageTimes{}
		}
		if !strings.HasPrefix(m.Bundle.Command, "sleep") {
			zero := 0
			r.State, r.ExitCode = codalab.StateFinalizing, &zero
		}
		runs[uuid] = r
	case codalab.MessageMarkFinalized:
		delete(runs, m.UUID)
	}
	return nil
}
