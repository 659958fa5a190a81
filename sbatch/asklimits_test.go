package sbatch_test

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// The limits and the use that Slurm tells are those by which it refuses a job.
func TestLimitsAreLearntBeforeSlurmRefuses(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		settings, err := s.real.Settings(t.Context())
		if err != nil || settings.WhyNoLimits() != "" {
			t.Fatal(err, settings.WhyNoLimits())
		}
		learn := func() (sbatch.Limit, bool) {
			table, err := s.real.Limits(t.Context(), settings.Cluster, "researcher")
			if err != nil {
				t.Fatal(err)
			}
			use, err := s.real.LimitUse(t.Context(), "researcher", []string{"limited"})
			if err != nil {
				t.Fatal(err)
			}
			limits := use.Fill(table.Of("", "limited", "cpu"))
			i := slices.IndexFunc(limits, func(l sbatch.Limit) bool { return l.Kind == sbatch.MaxSubmitJobsPU })
			if i < 0 {
				t.Fatalf("no limit among %+v", limits)
			}
			return limits[i], limits[i].Full()
		}
		// Other tests use the QOS, too, so the first job may be refused.
		for full := false; !full; {
			r := s.held()
			r.QOS = "limited"
			id, err := s.Submit(t.Context(), r)
			if err == nil {
				s.cancelLater(t, id, r.Name)
			}
			var l sbatch.Limit
			if l, full = learn(); !l.Known || l.Most != 2 || l.Used > 2 || err == nil && l.Used < 1 {
				t.Fatalf("after an sbatch (%v) Slurm tells %+v", err, l)
			}
		}
	})
}
