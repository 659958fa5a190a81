package sbatch

import (
	"testing"
	"time"
)

func TestTimeLimitsAreReadAsSbatchReadsThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"10-0": 240 * time.Hour, "90": 90 * time.Minute, "1:30": 90 * time.Second, "2:00:00": 2 * time.Hour, "1-2:30": 26*time.Hour + 30*time.Minute,
		"1-0:0:1": 24*time.Hour + time.Second, "UNLIMITED": 0, "infinite": 0, "7-00:00:00": 7 * 24 * time.Hour, "10:00": 10 * time.Minute,
	} {
		if got, err := ParseLimit(text); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1-", "1h", "1:2:3:4"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
