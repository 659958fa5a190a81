package sim

import "testing"

func BenchmarkSeed(b *testing.B) {
	b.ReportAllocs()
	seed := uint64(0)
	for b.Loop() {
		seed++
		if r, err := Run(b.Context(), seed, Options{}); err != nil || len(r.Violations) > 0 {
			b.Fatal(err, r.Violations)
		}
	}
}
