package cachetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// job is the environment variable that makes a test program another process of a test.
const job = "CACHETEST_JOB"

// orders has the orders for another process; one of its fields is set. They travel by gob, which
// omits the functions of cache.Options and cache.Want.
type orders struct {
	Puppet *puppetOrders
	Worker *workerOrders
}

// Main carries out the orders of a process that a test of this package has started, and then ends
// the process. In other processes it only returns. TestMain calls it before anything else.
func Main() {
	text := os.Getenv(job)
	if text == "" {
		return
	}
	var o orders
	err := gob.NewDecoder(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))).Decode(&o) //nolint:gosec // the orders are of this program
	switch {
	case err != nil:
	case o.Puppet != nil:
		o.Puppet.run(os.Stdin, os.Stdout)
	case o.Worker != nil:
		err = o.Worker.run(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (o orders) variable(tb testing.TB) string {
	tb.Helper()
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(o); err != nil {
		tb.Fatal(err)
	}
	return job + "=" + base64.StdEncoding.EncodeToString(text.Bytes())
}

// puppetOrders are for a process that gets one key. Its fill writes half of the text, prints
// "filling", waits for a line, and writes the rest. In the end the process prints "got PATH" or
// "failed: CAUSE", and runs until its input ends.
type puppetOrders struct {
	Dir     string
	Options cache.Options
	Want    cache.Want
	Text    string
}

func (o puppetOrders) run(in io.Reader, out io.Writer) {
	lines := make(chan struct{}, 1)
	say := func(text string) { _, _ = fmt.Fprintln(out, text) } // the input ends, too, when the parent is gone
	var get sync.WaitGroup                                      // get ends with the process
	get.Go(func() {
		path, err := o.get(func() { say("filling"); <-lines })
		if err != nil {
			path = "failed: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		say(path)
	})
	for s := bufio.NewScanner(in); s.Scan(); {
		lines <- struct{}{}
	}
}

// get gets the key, and calls wait in the middle of a fill.
func (o puppetOrders) get(wait func()) (line string, err error) {
	c, err := cache.Open(o.Dir, o.Options)
	if err != nil {
		return "", err
	}
	path, err := c.Get(context.Background(), o.Want, func(_ context.Context, tmp string) error {
		f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		half := len(o.Text) / 2
		_, err = f.WriteAt([]byte(o.Text[:half]), 0)
		if err = errors.Join(err, f.Sync()); err != nil {
			return err
		}
		wait()
		_, err = f.WriteAt([]byte(o.Text[half:]), int64(half))
		return errors.Join(err, f.Close())
	})
	return "got " + path, err
}

// puppet is a process with puppetOrders, as its parent sees it.
type puppet struct {
	*testenv.Process
	t     *testing.T
	lines *bufio.Scanner
}

// filling starts a puppet and waits until it fills.
func (on *trial) filling(o puppetOrders) *puppet {
	on.Helper()
	p := testenv.Again(on, orders{Puppet: &o}.variable(on))
	on.Cleanup(func() {
		p.Kill()
		_ = p.Wait() // die may have waited already
	})
	lines := bufio.NewScanner(p)
	if lines.Scan(); lines.Text() != "filling" {
		on.Fatalf("the other process says %q", lines.Text())
	}
	return &puppet{Process: p, t: on.T, lines: lines}
}

// ends waits for the end of the Get and returns the path.
func (p *puppet) ends() (path string) {
	p.t.Helper()
	p.lines.Scan()
	path, ok := strings.CutPrefix(p.lines.Text(), "got ")
	if !ok {
		p.t.Fatalf("the other process says %q", p.lines.Text())
	}
	return path
}

// goOn lets the fill continue.
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
	for p.lines.Scan() { // until the output ends
	}
	if err := p.Wait(); err != nil {
		p.t.Error(err)
	}
}
