package sbatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// The questions that callers ask before they submit a job.

func TestPartitionsAreListedWithTheMostThatANodeHas(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		own := "cltest-list" + s.name[len("cltest"):]
		s.addPartition(t, slurmtest.Partition{Name: own, Nodes: []string{"n2", "n3"}, State: "DOWN"}, "Hidden=YES")
		all, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []sbatch.Partition
		for _, p := range all {
			if !slices.Contains([]string{"cpu", "gpu", "short", own}, p.Name) {
				continue // another test's
			}
			if p.Ready < 1 || p.Ready > p.Nodes { // another test drains a node
				t.Errorf("%s: %d nodes of %d are ready", p.Name, p.Ready, p.Nodes)
			}
			p.Ready, p.Idle = 0, 0
			got = append(got, p)
		}
		plain := sbatch.NodeResources{CPUs: 64, Memory: 256000 << 20}
		gpus := plain
		gpus.GPUs, gpus.GPUTypes = 4, map[string]int64{"a100": 4}
		together := func(nodes, withGPUs int64) (all sbatch.NodeResources) {
			all.Add(plain, nodes-withGPUs)
			all.Add(gpus, withGPUs)
			if withGPUs == 0 {
				all.GPUTypes = nil
			}
			return all
		}
		want := []sbatch.Partition{
			{Name: "cpu", Default: true, State: "up", MaxTime: 7 * 24 * time.Hour, DefaultTime: time.Hour, Nodes: 2, Most: plain, All: together(2, 0), Sizes: sbatch.NodeSizes{plain}},
			{Name: "gpu", State: "up", MaxTime: 2 * 24 * time.Hour, DefaultTime: time.Hour, Nodes: 2, Most: gpus, All: together(2, 2), Sizes: sbatch.NodeSizes{gpus}},
			{Name: "short", State: "up", MaxTime: 10 * time.Minute, DefaultTime: time.Minute, Nodes: 4, Most: gpus, All: together(4, 2), Sizes: sbatch.NodeSizes{gpus}},
			{Name: own, State: "down", Nodes: 2, Most: gpus, All: together(2, 1), Sizes: sbatch.NodeSizes{gpus}},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

func TestAccountsOfAUserAreListed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		got, err := s.Associations(t.Context(), "researcher")
		if err != nil {
			t.Fatal(err)
		}
		got = slices.DeleteFunc(got, func(a sbatch.Association) bool {
			return strings.HasPrefix(a.Account, "cltest") // another test's
		})
		for i := range got {
			slices.Sort(got[i].QOS)
		}
		both := []string{"limited", "normal"}
		want := []sbatch.Association{
			{Account: "lab", Default: true, QOS: both},
			{Account: "nlp", QOS: both},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if none, err := s.Associations(t.Context(), "cltest-nobody"); err != nil || len(none) != 0 {
			t.Errorf("of an unknown user: %+v, %v", none, err)
		}
	})
}

func TestTrySubmitsNoJob(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		r := s.request("true")
		r.Partition, r.GPUs, r.GPUType = "gpu", 4, "a100"
		if err := s.Try(t.Context(), r); err != nil {
			t.Errorf("a job that would run: %v", err)
		}
		r.Partition = "nosuch"
		if err := s.Try(t.Context(), r); err == nil {
			t.Error("a job that would be refused: no error")
		}
		if left := s.observe(t).ByName()[s.name]; len(left) > 0 {
			t.Errorf("it left %+v", left)
		}
	})
}

func TestDetailsOfAJobAreShownAsSlurmKeepsThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		before := time.Now().Truncate(time.Second)
		r := s.held()
		r.Comment, r.Partition, r.Account, r.Time = "a|b\nc", "short", "nlp", 90*time.Second
		asked := s.submit(t, r)
		plain := s.submit(t, named(s.held(), "-plain"))
		got, err := s.Describe(t.Context(), asked)
		if err != nil || got.Submitted.Before(before) || got.Submitted.After(time.Now()) {
			t.Errorf("%+v, %v; want a submission since %s", got, err, before)
		}
		want := sbatch.Details{Name: r.Name, Comment: r.Comment, Partition: "short", Account: "nlp", QOS: "normal", Time: 2 * time.Minute}
		got.Submitted = time.Time{}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		got, err = s.Describe(t.Context(), plain)
		want = sbatch.Details{Name: s.name + "-plain", Partition: "cpu", Account: "lab", QOS: "normal", Time: time.Hour}
		got.Submitted = time.Time{}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
		if none, err := s.Describe(t.Context(), 1<<30); err == nil || !strings.Contains(err.Error(), "Invalid job id specified") {
			t.Errorf("a job that is not there: %+v, %v", none, err)
		}
	})
}

func TestSettingsOfTheControllerAreAsked(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		got, err := s.real.Settings(t.Context())
		version := strings.Fields(s.command(t, "sinfo", "--version").Out)[1]
		want := sbatch.Settings{Cluster: "clslurm", Version: version, Accounting: true, Limits: true, MinJobAge: 300 * time.Second, KillWait: s.killWait, MaxArraySize: 10001}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	})
}

// Given several clusters, squeue leaves out those that it cannot reach, with exit status 0. So a Client has one
// cluster.
func TestJobsOfANamedClusterAreKeptApart(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		named := *s.real
		named.Cluster = "clslurm"
		id, err := named.Submit(t.Context(), s.held())
		if err != nil {
			t.Fatal(err)
		}
		s.cancelLater(t, id, s.name)
		seen, err := named.Observe(t.Context(), time.Now())
		if jobs := seen.ByName()[s.name]; err != nil || len(jobs) != 1 || jobs[0].ID != id || jobs[0].Cluster != "clslurm" {
			t.Errorf("%+v, %v", jobs, err)
		}
		if known, err := named.Settings(t.Context()); err != nil || known.Cluster != "clslurm" {
			t.Errorf("%+v, %v", known, err)
		}
		if d, err := named.Describe(t.Context(), id); err != nil || d.Name != s.name {
			t.Errorf("%+v, %v", d, err)
		}
		if all, err := named.Partitions(t.Context()); err != nil || len(all) < 3 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := named.Cancel(t.Context(), s.name, id); err != nil {
			t.Error(err)
		}
		several := s.command(t, "squeue", "--clusters=clslurm,nosuch", "--me", "--noheader", "--states=all", "--format=%A")
		if several.Exit != 0 || !strings.Contains(several.Out, id.String()) {
			t.Errorf("of two clusters: %+v", several)
		}
		named.Cluster = "nosuch"
		if seen, err := named.Observe(t.Context(), time.Now()); err == nil {
			t.Errorf("an unknown cluster has the jobs %+v", seen)
		}
	})
}
