package slurmtest

import "testing"

func TestVersionIsTheNewestThatASlurmIsNotOlderThan(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]Version{
		"slurm-wlm 22.05.8": Slurm2205, "slurm 20.11.9": Slurm2205, "slurm 23.11.10": Slurm2205, "slurm-wlm 24.11.5": Slurm2411,
		"slurm 25.05.1": Slurm2411, "slurm-wlm 26.05.5": Slurm2605, "slurm 27.11.0": Slurm2605,
	} {
		if got := VersionOf(said); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}
