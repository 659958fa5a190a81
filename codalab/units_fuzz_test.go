package codalab_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Sizes and times of requests come from any user. None is negative, and each can be written and read again.
func FuzzUnits(f *testing.F) {
	for _, text := range []string{"2g", "1.5TB", "0", "3d", "90m", "1e400", "-1", "9223372036854775807", "inf", "nan", "0x1p62", "1_0k", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := codalab.ParseSize(text); err == nil {
			if _, err := codalab.ParseSize(codalab.FormatSize(n)); err != nil || n < 0 {
				t.Errorf("%q is %d bytes, %v", text, n, err)
			}
		}
		if d, err := codalab.ParseDuration(text); err == nil {
			again, err := codalab.ParseDuration(codalab.SpellDuration(d))
			const exact = 1 << 53 // of a float64
			if err != nil || d < 0 || d < exact && again != d.Truncate(time.Second) {
				t.Errorf("%q is %v, which is read again as %v, %v", text, d, again, err)
			}
			_ = codalab.FormatDuration(d) // must not panic
		}
	})
}
