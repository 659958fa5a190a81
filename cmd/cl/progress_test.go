package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// drawn returns the lines that a progress has drawn, one over the other.
func drawn(b *bytes.Buffer) []string {
	return strings.Split(strings.TrimPrefix(b.String(), "\r\x1b[K"), "\r\x1b[K")
}

func TestProgressTellsHowMuchAndHowLong(t *testing.T) {
	t.Parallel()
	var shown bytes.Buffer
	now := time.Now()
	p := &progress{to: &shown, width: func() int { return 200 }, verb: "Sent", total: 100 << 20, files: 10, now: func() time.Time { return now }, begun: now, rated: now}
	for range 9 {
		now = now.Add(500 * time.Millisecond)
		p.addFile()
		p.add(10 << 20)
	}
	p.clear()
	p.end()
	p.end()
	want := []string{
		"Sent 20m of 100m (20%), 2 of 10 files, 20m/s, 4s left",
		"Sent 30m of 100m (30%), 3 of 10 files, 20m/s, 3s left",
		"Sent 40m of 100m (40%), 4 of 10 files, 20m/s, 3s left",
		"Sent 50m of 100m (50%), 5 of 10 files, 20m/s, 2s left",
		"Sent 60m of 100m (60%), 6 of 10 files, 20m/s, 2s left",
		"Sent 70m of 100m (70%), 7 of 10 files, 20m/s, 1s left",
		"Sent 80m of 100m (80%), 8 of 10 files, 20m/s, 1s left",
		"Sent 90m of 100m (90%), 9 of 10 files, 20m/s, 0s left",
		"",
		"Sent 90m of 100m (90%), 9 of 10 files, 20m/s, took 4s\n",
	}
	if diff := cmp.Diff(want, drawn(&shown)); diff != "" {
		t.Error(diff)
	}
}

func TestProgressOfAnUnknownSizeFitsItsTerminal(t *testing.T) {
	t.Parallel()
	var shown bytes.Buffer
	now := time.Now()
	p := &progress{to: &shown, width: func() int { return 16 }, verb: "Received", total: -1, now: func() time.Time { return now }, begun: now, rated: now}
	now = now.Add(2 * time.Second)
	p.add(10 << 20)
	if diff := cmp.Diff([]string{"Received 10m, 5"}, drawn(&shown)); diff != "" {
		t.Error(diff)
	}
}

func TestShortTransfersAndPipesShowNoProgress(t *testing.T) {
	t.Parallel()
	var shown bytes.Buffer
	now := time.Now()
	c := &cli{Process: program.Process{Stderr: &shown, Now: func() time.Time { return now }}}
	piped := c.progress("Sent", 10)
	short := c.progress("Sent", 10)
	short.to, short.width = &shown, func() int { return 80 }
	short.add(10)
	now = now.Add(time.Minute)
	piped.add(10)
	piped.end()
	short.end()
	if shown.Len() > 0 {
		t.Errorf("shown %q", shown.String())
	}
}
