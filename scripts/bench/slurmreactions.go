package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The numbers of runs of each reaction, and of those that are there at once.
const (
	noticedRuns, noticedAtOnce = 40, 10
	killedRuns                 = 12
)

// benchReactions measures two reactions on a whole site: from the end of a command until the bridge has decided to
// collect its results, and from cl kill until Slurm has ended the job.
func benchReactions(ctx context.Context) {
	s := startSite(ctx, testsite.Options{})
	defer func() { _ = s.Close() }()  // the figures are printed before
	const aSnapshot = 7 * time.Second // by default there is one each six seconds
	var noticed, killed, young []float64
	for len(noticed) < noticedRuns {
		noticed = append(noticed, s.timeNoticed(ctx)...)
	}
	for range killedRuns {
		killed = append(killed, s.timeKill(ctx, aSnapshot))
		young = append(young, s.timeKill(ctx, 0))
	}
	for _, f := range []struct {
		name   string
		values []float64
		bar    float64
	}{{"slurm/end_noticed", noticed, 1}, {"slurm/kill_gone", killed, 3}, {"slurm/kill_gone_young", young, 3}} {
		figure{name: f.name, value: median(f.values), unit: "s"}.print()
		figure{name: f.name + "_p95", value: quantile(f.values, 0.95), unit: "s", bar: f.bar}.print()
	}
}

// timeNoticed runs some bundles at once, which end at random times, and returns for each the time from the end of its
// command until the bridge decided that it had ended. One machine has both clocks.
func (s *site) timeNoticed(ctx context.Context) (took []float64) {
	var bundles []string
	for range noticedAtOnce {
		bundles = append(bundles, s.cl(ctx, "run", "--request-queue", "cpu", fmt.Sprintf("sleep %.2f; %s", 1+3*rand.Float64(), stamp)))
	}
	for _, uuid := range bundles {
		s.cl(ctx, "wait", uuid)
		ended := parseStamp(s.cl(ctx, "cat", uuid+"/stdout"))
		took = append(took, s.enteredAt(ctx, uuid, plan.Collecting).Sub(ended).Seconds())
	}
	return took
}

// explain returns what the bridge knows of a bundle.
func (s *site) explain(ctx context.Context, uuid string) (e heartbeat.Explanation) {
	check(json.Unmarshal([]byte(s.run(ctx, filepath.Join(testsite.Base, "bin/cl-bridge"), "explain", "--config", s.BridgeConfig(), "--json", uuid)), &e))
	return e
}

// enteredAt returns the time at which a bundle entered a phase.
func (s *site) enteredAt(ctx context.Context, uuid string, phase plan.Phase) time.Time {
	for _, h := range s.explain(ctx, uuid).History {
		if h.Phase == phase {
			return h.At
		}
	}
	check(fmt.Errorf("the bundle %s was never %s", uuid, phase))
	return time.Time{}
}

// timeKill runs a bundle, kills it when it has run for this time, and returns the time from the start of cl kill until its
// job is gone. The bridge cancels no job that no snapshot has shown, because its id might be another's.
func (s *site) timeKill(ctx context.Context, age time.Duration) float64 {
	uuid := s.cl(ctx, "run", "--request-queue", "cpu", "sleep 600")
	within, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	for s.cl(within, "info", "-f", "state", uuid) != "running" {
		check(pause.For(within, 100*time.Millisecond))
	}
	job := s.explain(ctx, uuid).Job.String()
	check(pause.For(ctx, age+rand.N(time.Second))) // at all moments of a check-in
	return seconds(func() {
		s.cl(ctx, "kill", uuid)
		for s.isLive(within, job) {
			check(pause.For(within, 10*time.Millisecond))
		}
	})
}

// isLive reports whether Slurm shows a job that has not ended.
func (s *site) isLive(ctx context.Context, job string) bool {
	state := strings.TrimSpace(s.run(ctx, "squeue", "--noheader", "--states=all", "--jobs="+job, "--format=%T"))
	return state == "RUNNING" || state == "COMPLETING"
}
