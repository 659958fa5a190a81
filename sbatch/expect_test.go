package sbatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The first answer is recorded from Slurm 22.05.8 and 24.11.5, the second from 26.05.5, with the time in UTC.
func TestExpectedStartIsReadFromSbatchsAnswer(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 27, 1, 3, 2, 0, time.UTC)
	for said, want := range map[string]*Expected{
		"sbatch: Job 288 to start at 2026-11-27T01:03:02 using 1 processors on nodes n1 in partition cpu\n":                      {at, "n1", "cpu"},
		"sbatch: Job 454 to start at 2026-11-27T01:03:02 a using 1 processors on nodes n1 in partition cpu\n":                    {at, "n1", "cpu"},
		"banner of the site\nsbatch: Job 9 to start at 2026-11-27T01:03:02 using 4 processors on n[1-2],gpu3 in partition a-b\n": {at, "n[1-2],gpu3", "a-b"},
		"sbatch: Job 288 to start at 2026-11-27T01:03:02 using 1 processors on n1\n":                                             {at, "n1", ""},
		"sbatch: Job 288 to start at Unknown using 1 processors on nodes n1 in partition cpu\n":                                  nil,
		"sbatch: Job 288 to start at 2026-13-27T01:03:02 using 1 processors on nodes n1 in partition cpu\n":                      nil,
		"": nil,
	} {
		if diff := cmp.Diff(want, parseExpected(said)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", said, diff)
		}
	}
}

func FuzzExpected(f *testing.F) {
	f.Add("sbatch: Job 288 to start at 2026-11-27T01:03:02 using 1 processors on nodes n1 in partition cpu")
	f.Fuzz(func(t *testing.T, said string) {
		if e := parseExpected(said); e != nil && (e.Start.IsZero() || e.Nodes == "") {
			t.Errorf("%q: %+v", said, e)
		}
	})
}
