package codalab

import "testing"

func TestUsageIsToldInASentence(t *testing.T) {
	t.Parallel()
	n := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		whole  UsagePoint
		limits UsageLimits
		want   string
		hint   string
	}{
		{UsagePoint{Seconds: 1e4}, UsageLimits{CPUs: 8}, "", ""},
		{
			UsagePoint{Seconds: 1e4, CPUs: n(.94), CPUsMax: n(1.02), Memory: n(1), MemoryMax: n(3.2 * (1 << 30))},
			UsageLimits{CPUs: 8, Memory: 8 << 30},
			"It used 0.9 of 8 CPUs on average and at most 3.2g of 8g of memory.", "It has 8 CPUs and never used more than 1.0: --request-cpus 2 would do.",
		},
		{UsagePoint{Seconds: 299, CPUs: n(1), CPUsMax: n(1)}, UsageLimits{CPUs: 8}, "It used 1.0 of 8 CPUs on average.", ""},
		{UsagePoint{Seconds: 1e4, CPUs: n(1), CPUsMax: n(4.1)}, UsageLimits{CPUs: 8}, "It used 1.0 of 8 CPUs on average.", ""},
		{UsagePoint{Seconds: 1e4, CPUs: n(.02), CPUsMax: n(.02)}, UsageLimits{CPUs: 1}, "It used 0.02 of 1 CPU on average.", ""},
		{UsagePoint{Seconds: 1e4, MemoryMax: n(1 << 30)}, UsageLimits{}, "It used at most 1g of memory.", ""},
		{
			UsagePoint{Seconds: 1e4, CPUs: n(120), CPUsMax: n(120), MemoryMax: n(1 << 30), GPUUsage: n(0), GPUUsageMax: n(0), GPUMemoryMax: n(1 << 20)},
			UsageLimits{CPUs: 128, GPUs: 2},
			"It used 120 of 128 CPUs on average, at most 1g of memory, 0 % of 2 GPUs on average and at most 1m of GPU memory.", "It has 2 GPUs and was not seen to use any.",
		},
	} {
		u := Usage{Whole: c.whole, Limits: c.limits}
		if got := u.Sentence(); got != c.want {
			t.Errorf("%+v: %q", c.whole, got)
		}
		if got := u.Hint(); got != c.hint {
			t.Errorf("%+v: hint %q", c.whole, got)
		}
	}
}
