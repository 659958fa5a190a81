package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// TestWorkersRunInJobsOfARealSlurm starts two workers in jobs, which run two bundles, and ends one of them.
func TestWorkersRunInJobsOfARealSlurm(t *testing.T) {
	t.Parallel()
	cluster := testenv.Slurm(t)
	web := startServerAt(t, filepath.Join(t.TempDir(), "server"), net.JoinHostPort(hostOfNodes(t, cluster), "0"))
	api := connectAnn(t, web.URL)
	uuids := stage(t, api, 2, nil)
	client := &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}
	slurm := &counted{Slurm: &sbatch.Observer{Scheduler: client, Interval: time.Second, Now: time.Now}}
	dir := testenv.SharedDir(t)
	if err := os.Chown(dir, os.Geteuid(), os.Getegid()); err != nil { // the workers' password lies there
		t.Fatal(err)
	}
	program, err := os.ReadFile(standInPath(t)) // nodes do not see it where it is
	if err != nil {
		t.Fatal(err)
	}
	m, b := newManager(t, web.URL, dir, slurm)
	b.Worker.Executable = filepath.Join(dir, "cl-worker")
	testenv.WriteProgram(t, b.Worker.Executable, program)
	b.JobName = "manager-test-" + codalab.NewUUID()[2:10]
	b.Worker.IdleSeconds = 300
	partitions, err := client.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Job.Time, b.Job.GPUs = 100*24*time.Hour, 1
	if changes := b.Job.Fit(partitions, true); len(changes) != 2 {
		t.Errorf("the default partition changes %q", changes)
	}
	t.Cleanup(func() { endAll(t, b, client) })
	if err := m.Pass(t.Context()); err != nil || len(slurm.requests) != 2 {
		t.Fatalf("%d submissions, %v", len(slurm.requests), err)
	}
	t.Cleanup(func() {
		for _, r := range slurm.requests {
			if log, err := os.ReadFile(r.Output); t.Failed() {
				t.Logf("%s: %s, %v", r.Name, log, err)
			}
		}
	})
	for _, uuid := range uuids {
		awaitState(t, api, uuid, codalab.StateReady)
	}
	pilots, err := b.Pilots(t.Context())
	if err != nil || len(pilots) != 2 || pilots[0].Phase != pilot.Active || pilots[0].Node == "" {
		t.Fatalf("%+v, %v", pilots, err)
	}
	var survey pilot.Survey
	testenv.Await(t, "both workers have checked in", func() bool { // one may have taken both bundles
		survey, err = m.Survey(t.Context())
		return err == nil && len(survey.Pilots) == 2 && survey.Pilots[0].Worker != nil && survey.Pilots[1].Worker != nil
	}, &survey, &err)
	if err := b.Stop(t.Context(), pilots[0]); err != nil {
		t.Fatal(err)
	}
	var log []byte
	testenv.Await(t, "the worker got TERM", func() bool {
		log, err = os.ReadFile(b.LogFile(pilots[0].Name))
		return err == nil && strings.Contains(string(log), "the worker got TERM")
	}, &log, &err)
	if err := client.Try(t.Context(), b.Request(b.NewName(), nil)); err != nil {
		t.Errorf("Slurm refuses the job: %v", err)
	}
	b.Job.NodeList = "n2"
	if err := client.Try(t.Context(), b.Request(b.NewName(), nil)); err != nil {
		t.Errorf("Slurm refuses the job with a list of nodes: %v", err)
	}
}

// hostOfNodes is this host's address on the network of the cluster's nodes (scripts/slurm-cluster).
func hostOfNodes(t *testing.T, cluster slurmcluster.Cluster) string {
	t.Helper()
	bridge, err := net.InterfaceByName(cluster.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := bridge.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Fatal("the nodes' network has no address of this host")
	return ""
}

// endAll ends all jobs of a manager, and waits until they have ended: their directory is removed next.
func endAll(t *testing.T, b pilot.Backend, slurm *sbatch.Client) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var live []pilot.Pilot
	testenv.Await(t, "all workers have ended", func() bool {
		pilots, err := b.Pilots(ctx)
		testenv.Must(t, err)
		live = alive(pilots)
		for _, p := range live {
			if err := b.Stop(ctx, p); err != nil {
				t.Error(err)
			}
		}
		return len(live) == 0
	}, &live)
	if err := slurm.Cancel(ctx, ""); err != nil {
		t.Error(err)
	}
}
