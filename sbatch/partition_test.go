package sbatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPartitionsAreReadAsSlurmPrintsThem(t *testing.T) {
	t.Parallel()
	got, err := parsePartitions(recorded(t, "sinfo.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const memory = 256000 << 20
	const day = 24 * time.Hour
	plain := NodeResources{CPUs: 64, Memory: memory}
	times := func(n int64, node NodeResources) (all NodeResources) {
		all.Add(node, n)
		return all
	}
	gpus := NodeResources{CPUs: 64, Memory: memory, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}
	few := gpus
	few.CPUs = 8           // MaxCPUsPerNode
	half := times(2, gpus) // two of its four nodes have GPUs
	half.Add(plain, 2)
	want := []Partition{
		{Name: "cpu", Default: true, State: "up", MaxTime: 7 * day, DefaultTime: time.Hour, Nodes: 2, Ready: 2, Idle: 2, Most: plain, All: times(2, plain), Sizes: NodeSizes{plain}},
		{Name: "gpu", State: "up", MaxTime: 2 * day, DefaultTime: time.Hour, Nodes: 2, Ready: 2, Idle: 2, Most: gpus, All: times(2, gpus), Sizes: NodeSizes{gpus}},
		{Name: "short", State: "up", MaxTime: 10 * time.Minute, DefaultTime: time.Minute, Nodes: 4, Ready: 4, Idle: 4, Most: gpus, All: half, Sizes: NodeSizes{gpus}},
		{Name: "clrec-hidden", State: "up", Nodes: 1, Ready: 1, Idle: 1, Most: plain, All: plain, Sizes: NodeSizes{plain}},
		{
			Name: "clrec-down", State: "down", MaxTime: day + 12*time.Hour + 30*time.Minute, DefaultTime: time.Minute, Nodes: 2, Ready: 2, Idle: 2,
			Most: few, All: NodeResources{CPUs: 16, Memory: 2 * memory, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}},
			Sizes: NodeSizes{few},
		},
		{Name: "clrec-empty", State: "inactive"},
		{Name: "clrec-drain", State: "drain", Nodes: 1, Ready: 1, Idle: 1, Most: plain, All: plain, Sizes: NodeSizes{plain}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The nodes of a partition may differ, and each may have the most of one resource.
func TestMostOfEachResourceIsOfAnyNode(t *testing.T) {
	t.Parallel()
	got, err := parsePartitions("mix|mix|up|30:00|n/a|1K/2/3/1.50K|UNLIMITED|64|1000|gpu:a100:2(S:0,1),gpu:v100:1,lustre:no_consume:4G\n" +
		"mix|mix|up|30:00|n/a|0/1/0/1|UNLIMITED|2K|500|gpu:v100:2\n" +
		"mix|mix|up|30:00|n/a|0/1/0/1|UNLIMITED|8|2000|gpu:8(S:0-1)\n")
	want := []Partition{{
		Name: "mix", State: "up", MaxTime: 30 * time.Minute, Nodes: 1538, Ready: 1028, Idle: 4,
		Most: NodeResources{CPUs: 2048, Memory: 2000 << 20, GPUs: 8, GPUTypes: map[string]int64{"a100": 2, "v100": 2}},
		All: NodeResources{
			CPUs: 1536*64 + 2048 + 8, Memory: (1536*1000 + 500 + 2000) << 20, GPUs: 1536*3 + 2 + 8,
			GPUTypes: map[string]int64{"a100": 1536 * 2, "v100": 1536 + 2},
		},
		Sizes: NodeSizes{
			{CPUs: 64, Memory: 1000 << 20, GPUs: 3, GPUTypes: map[string]int64{"a100": 2, "v100": 1}},
			{CPUs: 2048, Memory: 500 << 20, GPUs: 2, GPUTypes: map[string]int64{"v100": 2}},
			{CPUs: 8, Memory: 2000 << 20, GPUs: 8},
		},
	}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestRequestFitsOneNodeAndNotSeveralTogether: neither the sum of all nodes nor the maximum of each resource
// decides.
func TestRequestFitsOneNodeAndNotSeveralTogether(t *testing.T) {
	t.Parallel()
	wide := NodeResources{CPUs: 128, Memory: 100}
	deep := NodeResources{CPUs: 8, Memory: 1000, GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}
	var sizes NodeSizes
	sizes = sizes.With(NodeResources{CPUs: 4, Memory: 50}).With(deep, wide, NodeResources{CPUs: 8, Memory: 1000, GPUs: 2}, deep)
	if d := cmp.Diff(NodeSizes{deep, wide}, sizes); d != "" {
		t.Errorf("sizes (-want +got):\n%s", d)
	}
	for _, c := range []struct {
		request NodeResources
		fits    bool
	}{
		{NodeResources{CPUs: 128, Memory: 100}, true},
		{NodeResources{CPUs: 8, Memory: 1000, GPUs: 4}, true},
		{NodeResources{CPUs: 9, Memory: 1000}, false},
		{NodeResources{CPUs: 1, Memory: 1001}, false},
		{NodeResources{CPUs: 9, GPUs: 1}, false},
		{NodeResources{GPUs: 4, GPUTypes: map[string]int64{"a100": 4}}, true},
		{NodeResources{GPUs: 1, GPUTypes: map[string]int64{"h100": 1}}, false},
	} {
		if sizes.Fit(c.request) != c.fits {
			t.Errorf("%+v fits: %v, want %v", c.request, !c.fits, c.fits)
		}
	}
}

func TestGenericResourcesAreReadInAllTheirForms(t *testing.T) {
	t.Parallel()
	for gres, want := range map[string]NodeResources{
		"(null)":                       {},
		"":                             {},
		"gpu":                          {GPUs: 1},
		"gpu:2":                        {GPUs: 2},
		"gpu:tesla":                    {GPUs: 1, GPUTypes: map[string]int64{"tesla": 1}},
		"gpu:a100_1g.5gb:7(S:0)":       {GPUs: 7, GPUTypes: map[string]int64{"a100_1g.5gb": 7}},
		"gpu:1080ti:4":                 {GPUs: 4, GPUTypes: map[string]int64{"1080ti": 4}},
		"gpu:no_consume:3":             {GPUs: 3},
		"shard:64,gpu:1K,mps:100":      {GPUs: 1024},
		"gpu:a:1,gpu:a:1,gpu:b:1(S:0)": {GPUs: 3, GPUTypes: map[string]int64{"a": 2, "b": 1}},
	} {
		var got NodeResources
		if err := got.addGPUs(gres); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%q: %v\n%s", gres, err, cmp.Diff(want, got))
		}
	}
}

func TestHalfAListOfPartitionsIsAnError(t *testing.T) {
	t.Parallel()
	whole := recorded(t, "sinfo.txt")
	for _, out := range []string{
		"Welcome!\n" + whole,
		whole[:len(whole)-1],
		whole[:len(whole)-8] + "\n",
		strings.Replace(whole, "7-00:00:00", "a week", 1),
		strings.Replace(whole, "|64|", "|64+|", 1),
		strings.Replace(whole, "0/2/0/2", "2", 1),
		strings.Replace(whole, "gpu:a100:4", "gpu:a100:four", 1),
		strings.Replace(whole, "|up|", "||", 1),
	} {
		if partitions, err := parsePartitions(out); err == nil {
			t.Errorf("%d partitions were read from\n%s", len(partitions), out)
		}
	}
	if none, err := parsePartitions(""); err != nil || len(none) != 0 {
		t.Errorf("no partition: %+v, %v", none, err)
	}
}

func TestAssociationsAreReadAsSlurmPrintsThem(t *testing.T) {
	t.Parallel()
	got, err := parseAssociations(recorded(t, "sacctmgr.txt"))
	both := []string{"limited", "normal"}
	want := []Association{
		{Account: "lab", Default: true, QOS: both},
		{Account: "nlp", QOS: both},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	got, err = parseAssociations("lab|||\nlab|dev|gpu|\n")
	if d := cmp.Diff([]Association{{Account: "dev", Partition: "gpu"}}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, out := range []string{"sacctmgr: no\n", "lab|lab||normal", "lab|lab|normal\n"} {
		if all, err := parseAssociations(out); err == nil {
			t.Errorf("%q was read as %+v", out, all)
		}
	}
}

// Whatever sinfo prints, the partitions of its answer are valid.
func FuzzPartitions(f *testing.F) {
	f.Add("cpu|cpu*|up|7-00:00:00|1:00:00|0/2/0/2|UNLIMITED|64|256000|(null)\n")
	f.Add("a|a|drain|infinite|n/a|1K/1.50K/0/3K|8|1K|1M|gpu:a100:4(S:0-1),gpu:2\n")
	f.Fuzz(func(t *testing.T, out string) {
		partitions, err := parsePartitions(out)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, p := range partitions {
			if p.Name == "" || p.State == "" || names[p.Name] || p.MaxTime < 0 || p.DefaultTime < 0 || p.Nodes < 0 || p.Ready < 0 {
				t.Errorf("%q was read as %+v", out, p)
			}
			names[p.Name] = true
			if p.Most.CPUs < 0 || p.Most.Memory < 0 || p.Most.GPUs < 0 {
				t.Errorf("%q was read as %+v", out, p)
			}
			for kind, n := range p.Most.GPUTypes {
				if kind == "" || n < 0 || n > p.Most.GPUs {
					t.Errorf("%q was read as %+v", out, p)
				}
			}
		}
	})
}
