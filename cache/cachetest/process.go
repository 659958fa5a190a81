package cachetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// job is the environment variable by which a test program is told to be another
// process of a test.
const job = "CACHETEST_JOB"

// orders are what another process does: one of these.
type orders struct {
	Puppet *puppetOrders `json:",omitempty"`
	Worker *workerOrders `json:",omitempty"`
}

// Main is called by TestMain before anything else. In a process that a test of
// this package has started it does what that is for, and does not return.
func Main() {
	text := os.Getenv(job)
	if text == "" {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	switch {
	case err != nil:
	case o.Puppet != nil:
		err = o.Puppet.run(os.Stdin, os.Stdout)
	case o.Worker != nil:
		err = o.Worker.run(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// begin starts another process of this test.
func (o orders) begin(tb testing.TB) *testenv.Process {
	tb.Helper()
	return testenv.Again(tb, o.variable(tb))
}

func (o orders) variable(tb testing.TB) string {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	return job + "=" + string(text)
}

// options are those cache.Options that another process can be told.
type options struct {
	Size, MinFree       int64
	High, Low           float64
	Settle, Term, Grace time.Duration
	Group               bool
	Host                string
}

func told(o cache.Options) options {
	return options{o.Size, o.MinFree, o.High, o.Low, o.Settle, o.Term, o.Grace, o.Group, o.Host}
}

func (o options) cache() cache.Options {
	return cache.Options{
		Size: o.Size, MinFree: o.MinFree, High: o.High, Low: o.Low,
		Settle: o.Settle, Term: o.Term, Grace: o.Grace, Group: o.Group, Host: o.Host,
	}
}

// puppetOrders are those of a process that gets one key. When it fills, it
// writes half of the text, says "filling", waits for a line, and writes the
// rest. When others fill it says "waiting". At the end it says "got PATH" or
// "failed: CAUSE", and lives on until its input ends.
type puppetOrders struct {
	Dir     string
	Options options
	Key     cache.Key
	Holder  cache.Holder
	Owner   string
	Size    int64
	Resume  bool
	Text    string
}

func (o puppetOrders) run(in io.Reader, out io.Writer) error {
	say := func(text string) { fmt.Fprintln(out, text) } //nolint:errcheck // a parent that is gone closes the input too
	lines := make(chan struct{}, 100)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- struct{}{}
		}
		os.Exit(0) // the parent has ended, or wants no more
	}()
	c, err := cache.Open(o.Dir, o.Options.cache())
	if err != nil {
		return err
	}
	said := false
	w := cache.Want{Key: o.Key, Holder: o.Holder, Owner: o.Owner, Size: o.Size, Resume: o.Resume, Waiting: func(string) {
		if !said {
			say("waiting")
		}
		said = true
	}}
	path, err := c.Get(context.Background(), w, func(_ context.Context, tmp string) error {
		return o.fill(tmp, func() { say("filling"); <-lines })
	})
	if err != nil {
		say("failed: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		say("got " + path)
	}
	select {}
}

// fill writes the text, whatever is there, and waits in the middle of it.
func (o puppetOrders) fill(tmp string, wait func()) error {
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	half := len(o.Text) / 2
	if _, err := f.WriteAt([]byte(o.Text[:half]), 0); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	wait()
	if _, err := f.WriteAt([]byte(o.Text[half:]), int64(half)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

// puppet is such a process, seen from outside.
type puppet struct {
	*testenv.Process
	t     *testing.T
	lines *bufio.Scanner
}

func (on *trial) puppet(o puppetOrders) *puppet {
	on.Helper()
	p := orders{Puppet: &o}.begin(on)
	on.Cleanup(func() {
		p.Kill()
		_ = p.Wait() // it may have been waited for
	})
	return &puppet{Process: p, t: on.T, lines: bufio.NewScanner(p)}
}

// filling starts a puppet and waits until it fills. One that fails on a faulty
// file system before that is followed by another.
func (on *trial) filling(o puppetOrders) *puppet {
	on.Helper()
	for range 30 {
		p := on.puppet(o)
		if p.lines.Scan() && p.lines.Text() == "waiting" { // it says so once
			p.lines.Scan()
		}
		if p.lines.Text() == "filling" {
			return p
		}
		if !on.Faulty {
			on.Fatalf("the other process says %q", p.lines.Text())
		}
	}
	on.Fatal("no process comes to fill")
	return nil
}

// ends waits for the end of the Get, however it ends, and returns the path.
func (p *puppet) ends() (path string, ok bool) {
	p.t.Helper()
	for p.lines.Scan() {
		if path, ok := strings.CutPrefix(p.lines.Text(), "got "); ok {
			return path, true
		}
		if strings.HasPrefix(p.lines.Text(), "failed: ") {
			p.t.Logf("the other process %s", p.lines.Text())
			return "", false
		}
	}
	p.t.Fatal("the other process has ended and said nothing")
	return "", false
}

// goOn lets the fill go on.
func (p *puppet) goOn() {
	p.t.Helper()
	if _, err := io.WriteString(p.Input, "\n"); err != nil {
		p.t.Error(err)
	}
}

// die kills the process and waits for its end.
func (p *puppet) die() {
	p.t.Helper()
	p.Kill()
	for p.lines.Scan() { // up to the end
	}
	if err := p.Wait(); err != nil {
		p.t.Error(err)
	}
}
