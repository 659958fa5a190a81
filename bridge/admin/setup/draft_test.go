package setup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

func TestEachPartitionGetsAQueueWithAnAccountOrAReason(t *testing.T) {
	t.Parallel()
	site := slurmtest.NewSite()
	user := &site.Users[0]
	user.Name, user.Accounts = "ann", []string{"lab", "nlp"}
	site.Partitions = append(site.Partitions,
		slurmtest.Partition{Name: "old", Nodes: []string{"n1"}, State: "DOWN"},
		slurmtest.Partition{Name: "empty"})
	usable, leftOut, err := survey(t.Context(), slurmtest.NewCluster(t, site), "ann")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"cpu", "gpu", "short"}, partitionsOf(usable)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, q := range usable {
		if q.Account != "lab" || !cmp.Equal(q.Others, []string{"nlp"}) {
			t.Errorf("%s: account %q, others %q", q.Partition.Name, q.Account, q.Others)
		}
	}
	if d := cmp.Diff([]string{"partition old: it is down", "partition empty: it has no nodes"}, leftOut); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestOnlyUsablePartitionsAreChosen(t *testing.T) {
	t.Parallel()
	usable, _, err := survey(t.Context(), slurmtest.NewCluster(t, slurmtest.NewSite()), "nobody")
	if err != nil {
		t.Fatal(err)
	}
	var d draft
	if err := d.choose(usable, []string{"gpuu"}); err == nil || !strings.Contains(err.Error(), `no partition "gpuu" that you may use: there are cpu, gpu, short`) {
		t.Error(err)
	}
	if err := d.choose(usable, []string{"short", "cpu"}); err != nil || d.suggestDefault() != "cpu" {
		t.Errorf("%v; default %s", err, d.suggestDefault())
	}
	if err := d.setDefault("gpu"); err == nil || !strings.Contains(err.Error(), `no queue for a partition "gpu": there are short, cpu`) {
		t.Error(err)
	}
}
