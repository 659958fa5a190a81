package setup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestNodesOfSeveralSizesAreNotAddedUp(t *testing.T) {
	t.Parallel()
	wide, large := sbatch.NodeResources{CPUs: 64, Memory: 100 << 30}, sbatch.NodeResources{CPUs: 8, Memory: 1 << 40, GPUs: 2}
	for want, p := range map[string]sbatch.Partition{
		"3 nodes; one has at most 64 CPUs, 100g of memory":                                  {Nodes: 3, Ready: 3, Most: wide, Sizes: sbatch.NodeSizes{wide}},
		"3 nodes; one has at most 64 CPUs, 100g of memory, or 8 CPUs, 1t of memory, 2 GPUs": {Nodes: 3, Ready: 3, Most: wide.Max(large), Sizes: sbatch.NodeSizes{wide, large}},
		"3 nodes (1 of them up); one has at most 64 CPUs, 100g of memory":                   {Nodes: 3, Ready: 1, Most: wide, Sizes: sbatch.NodeSizes{wide}},
	} {
		if got := nodes(p); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// Whatever names a site has, the written file can be read and means the same.
func TestDraftIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	odd := "a\"b\\c\té#\n"
	d := draft{Server: "https://h", User: odd, PasswordFile: "/p " + odd, Shared: "/s", LowWater: "100m", SlurmBin: "/opt/slurm"}
	var usable []queue
	for _, p := range []sbatch.Partition{
		{Name: "gpu.a100", State: "up", Most: sbatch.NodeResources{GPUs: 6, GPUTypes: map[string]int64{"a100": 4, "v100": 2}}},
		{Name: "gpu-a100", State: "up", MaxTime: 30 * time.Minute, DefaultTime: time.Hour},
		{Name: "7days", State: "up", MaxTime: 7 * 24 * time.Hour, Most: sbatch.NodeResources{GPUs: 1, GPUTypes: map[string]int64{"t4": 1}}},
	} {
		usable = append(usable, queue{Partition: p, Account: odd, Others: []string{"x\ny"}})
	}
	if err := errors.Join(d.choose(usable, partitionsOf(usable)), d.setDefault("7days")); err != nil {
		t.Fatal(err)
	}
	d.LeftOut = []string{"partition x: it is\ndown"}
	c, err := config.Parse(strings.NewReader(d.text()))
	if err != nil {
		t.Fatalf("%v:\n%s", err, d.text())
	}
	if c.User != odd || c.PasswordFile != d.PasswordFile || c.Slurm.Bin != "/opt/slurm" || c.LowWater.Bytes != 100<<20 {
		t.Errorf("%+v", c)
	}
	first, second, third := c.Queue["gpu-a100"], c.Queue["gpu-a100-2"], c.Queue["q-7days"]
	if first == nil || second == nil || third == nil {
		t.Fatalf("queues %v", c.Queue)
	}
	if first.Partition != "gpu.a100" || first.GresType != "" || first.DefaultTime.Duration != time.Hour || first.MaxTime.Duration != 0 || first.Account != odd {
		t.Errorf("%+v", first)
	}
	if second.DefaultTime.Duration != 30*time.Minute || second.MaxTime != second.DefaultTime || !third.Default || third.GresType != "t4" {
		t.Errorf("%+v, %+v", second, third)
	}
}
