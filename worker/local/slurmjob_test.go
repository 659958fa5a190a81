package local

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A site may let a job use more than it has allocated.
func TestWorkerInASlurmJobOffersNoMoreThanItsJobHas(t *testing.T) {
	t.Parallel()
	host := Machine{CPUs: []int{0, 1, 2, 3}, Memory: 64 << 30, GPUs: []GPU{{Index: 0}, {Index: 1}, {Index: 2}}}
	for _, test := range []struct {
		name string
		env  map[string]string
		want Machine
	}{
		{"no job", map[string]string{"SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_GPUS": "1"}, host},
		{
			"a part",
			map[string]string{"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "2048", "SLURM_JOB_GPUS": "0,2"},
			Machine{CPUs: []int{0, 1}, Unbound: true, Memory: 2 << 30, GPUs: []GPU{{Index: 0}, {Index: 2}}},
		},
		{
			"no GPUs",
			map[string]string{"SLURM_JOB_ID": "8", "SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_CPU": "1024"},
			Machine{CPUs: []int{0, 1}, Unbound: true, Memory: 2 << 30},
		},
		{"all of it", map[string]string{"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "64", "SLURM_MEM_PER_NODE": "0", "SLURM_JOB_GPUS": "0-2"}, host},
	} {
		got, err := host.InAllocation(func(name string) string { return test.env[name] }, "ALL")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if _, err := host.InAllocation(func(name string) string { return map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "x"}[name] }, "ALL"); err == nil {
		t.Error("GPUs that cannot be read are taken for none")
	}
}
