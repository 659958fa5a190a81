package slurmtest_test

import (
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

func BenchmarkNew(b *testing.B) {
	site := slurmtest.NewSite()
	for b.Loop() {
		slurmtest.New(site)
	}
}

// A job's life, of five jobs.
func BenchmarkLife(b *testing.B) {
	site := slurmtest.NewSite()
	r := request("cl-ann-0x123456789abc.1-6f2c1d")
	b.ReportAllocs()
	for b.Loop() {
		c, now := slurmtest.New(site), time.Unix(1_800_000_000, 0)
		for range 5 {
			if _, err := c.Submit(now, ann, r); err != nil {
				b.Fatal(err)
			}
		}
		for range 10 {
			now = now.Add(time.Second)
			for _, o := range c.Advance(now) {
				c.Ended(now, o.Job, o.Restart, slurmtest.End{})
			}
			if _, err := c.Observe(now, ann); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	site, r, now := slurmtest.NewSite(), request("cl-ann-0x123456789abc.1-6f2c1d"), time.Unix(1_800_000_000, 0)
	c := slurmtest.New(site)
	for n := 0; b.Loop(); n++ {
		if n%10 == 0 {
			c = slurmtest.New(site)
		}
		if _, err := c.Submit(now, ann, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	c, now := slurmtest.New(slurmtest.NewSite()), time.Unix(1_800_000_000, 0)
	for range 5 {
		if _, err := c.Submit(now, ann, request("a")); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := c.Observe(now, ann); err != nil {
			b.Fatal(err)
		}
	}
}
