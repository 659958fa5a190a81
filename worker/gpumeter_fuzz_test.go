package worker

import (
	"math"
	"testing"
)

// nvidia-smi prints words for values that a GPU does not report.
func FuzzGPUMeter(f *testing.F) {
	f.Add("00000000:01:00.0, 50, 1024\n00000000:02:00.0, [N/A], [Insufficient Permissions]\n")
	f.Add("0:1, nan, -1\n0:2, inf, 9223372036854775807\n")
	f.Fuzz(func(t *testing.T, table string) {
		s, err := gpuMeter{n: 2}.parse(table)
		if err == nil && (math.IsNaN(s.busy) || math.IsInf(s.busy, 0) || s.busy < 0 || s.memory < 0) {
			t.Errorf("%q is %+v", table, s)
		}
	})
}
