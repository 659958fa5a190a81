package keywords_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// A moment that is read can be written and read again.
func FuzzTime(f *testing.F) {
	for _, text := range []string{"2026-11-28", "20261128T0506Z", "2026", "2026-11-28 05:06:07", "2026-11-28T05:06:07+01:00", "0000-01", "9999-12-31T23:59:59-14:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := keywords.ParseTime(text)
		if err != nil {
			return
		}
		again, err := keywords.ParseTime(at.UTC().Format("2006-01-02T15:04:05Z07:00"))
		if y := at.UTC().Year(); y >= 0 && y <= 9999 && (err != nil || !again.Equal(at.Truncate(time.Second))) {
			t.Errorf("%q is %v, which is read again as %v, %v", text, at, again, err)
		}
	})
}
