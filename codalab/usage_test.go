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
			"CPUs: 0.9 of 8 on average. Memory: at most 3.2g of 8g.", "It has 8 CPUs and never used more than 1.0: --request-cpus 2 would do.",
		},
		{UsagePoint{Seconds: 299, CPUs: n(1), CPUsMax: n(1)}, UsageLimits{CPUs: 8}, "CPUs: 1.0 of 8 on average.", ""},
		{UsagePoint{Seconds: 1e4, CPUs: n(1), CPUsMax: n(4.1)}, UsageLimits{CPUs: 8}, "CPUs: 1.0 of 8 on average.", ""},
		{UsagePoint{Seconds: 1e4, CPUs: n(.02), CPUsMax: n(.02)}, UsageLimits{CPUs: 1}, "CPUs: 0.02 of 1 on average.", ""},
		{UsagePoint{Seconds: 1e4, MemoryMax: n(1 << 30)}, UsageLimits{}, "Memory: at most 1g.", ""},
		{
			UsagePoint{Seconds: 1e4, CPUs: n(120), CPUsMax: n(120), MemoryMax: n(1 << 30), GPUUsage: n(0), GPUUsageMax: n(0), GPUMemoryMax: n(1 << 20)},
			UsageLimits{CPUs: 128, GPUs: 2},
			"CPUs: 120 of 128 on average. Memory: at most 1g. GPUs: 0 % of 2 on average. GPU memory: at most 1m.", "It was not seen to use its GPUs.",
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
