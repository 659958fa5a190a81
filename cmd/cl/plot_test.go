package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/plot"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// A drawing that is watched follows the file of a run, reads only what is new, and stays when the run has ended.
func TestPlotFollowsARun(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	w := newWorker(s.api, s.dir+"/runs")
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); w.serve(ctx) }()
	t.Cleanup(func() { stop(); <-served })
	uuid := strings.TrimSpace(s.ends(t, 0, "run", "train", "-n", "first").stdout)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(w.write(ctx, "log.jsonl", "{\"loss\": 8}\n{\"loss\": 4}\n{\"lo"))
	c := openConsole(t, 60, 16, s.consoleEnv(), "plot", "first", "/log.jsonl:loss", "--watch")
	c.sees("first: /log.jsonl:loss over row")
	c.sees(" 8 ┤⢤")
	do(w.write(ctx, "log.jsonl", "ss\": 2}\n"))
	c.sees(" 2 ┤")
	zero := 0
	do(w.write(ctx, "log.jsonl", "{\"loss\": 0}"))
	do(w.end(ctx, &zero, nil))
	c.ends(0)
	c.sees(" 0 ┤")
	whole := 0
	for _, r := range s.called("GET") {
		if r == "" {
			whole++
		}
	}
	if whole != 1 {
		t.Errorf("the file %s was read from its begin %d times: %q", uuid, whole, s.called("GET"))
	}
}

// A terminal gets Braille characters if it says that it has them.
func TestPlotStyleFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env, wanted string
		pipe        bool
		want        plot.Style
	}{
		{env: "LANG=en_US.UTF-8", want: plot.Braille},
		{env: "LANG=C LC_CTYPE=C.utf8", want: plot.Braille},
		{env: "LANG=en_US.UTF-8 LC_ALL=C", want: plot.Box},
		{env: "LANG=en_US.UTF-8 TERM=linux", want: plot.Box},
		{env: "LANG=en_US.UTF-8 TERM=linux", wanted: "braille", want: plot.Braille},
		{env: "WT_SESSION=1", want: plot.Braille},
		{env: "WT_SESSION=1", wanted: "ascii", want: plot.ASCII},
		{want: plot.Box},
		{env: "LANG=en_US.UTF-8", pipe: true, want: plot.ASCII},
		{env: "LANG=en_US.UTF-8", pipe: true, wanted: "box", want: plot.Box},
	} {
		env := map[string]string{}
		for word := range strings.FieldsSeq(test.env) {
			name, value, _ := strings.Cut(word, "=")
			env[name] = value
		}
		p := plotter{cli: &cli{Process: program.Process{Getenv: func(name string) string { return env[name] }}}, o: plotOptions{style: test.wanted}}
		if got := p.style(!test.pipe); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A run whose worker does not answer hides no other one.
func TestPlotGoesOnWithoutAWorkerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	away := s.aRun(t, "away", "true")
	done := s.dir + "/done"
	if err := os.Mkdir(done, 0o755); err != nil {
		t.Fatal(err)
	}
	s.file(t, "done/log.jsonl", []byte("{\"loss\": 1}\n{\"loss\": 2}\n"))
	s.ends(t, 0, "upload", done)
	s.on("GET", away+"/contents/info", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "the worker does not answer", http.StatusGatewayTimeout)
	})
	got := s.ends(t, 0, "plot", "/log.jsonl:loss")
	if !strings.Contains(got.stdout, "done: /log.jsonl:loss over row") || got.stderr != "Files on workers that do not answer: 1 of 2.\n" {
		t.Errorf("%q, %q", got.stdout, got.stderr)
	}
}

// A drawing in which nobody can tell the lines apart is refused, with the way to the best ones; their points are printed.
func TestPlotOfTooManySeriesIsRefused(t *testing.T) {
	t.Parallel()
	many := func(c *cli) *plotter {
		p := newPlotter(c, nil, plotOptions{}, []plotValue{{"/log.jsonl:loss", "log.jsonl", "loss"}})
		if err := p.add(make([]client.BundleInfo, plotMost+1)); err != nil {
			t.Fatal(err)
		}
		for _, f := range p.files {
			f.series[0].add(1, json.Number("1"))
		}
		return p
	}
	err := many(&cli{}).check()
	if want := fmt.Sprintf("UsageError: These are %d series, and a drawing has %d at most: cl plot $(cl best … /log.jsonl:-1:loss --top 10 -u) … draws the best", plotMost+1, plotMost); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := many(&cli{asJSON: true}).check(); err != nil {
		t.Error(err)
	}
	p := newPlotter(&cli{}, nil, plotOptions{}, []plotValue{{"", "a.csv", "x"}, {"", "b.csv", "x"}})
	if err := p.add(make([]client.BundleInfo, plotFiles/2+1)); err == nil || !strings.Contains(err.Error(), "at most 500 bundles, and these are 501") {
		t.Errorf("files without end: %v", err)
	}
}

// Lines in a legend have names of their own.
func TestSeriesOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	run := func(uuid, name string, tags ...any) codalab.Bundle {
		return codalab.Bundle{UUID: uuid, Metadata: codalab.Metadata{"name": name, "tags": tags}}
	}
	const sweep = "sweep=0x00000000000000000000000000000001"
	var series []*plotSeries
	for _, b := range []codalab.Bundle{run("0x1234567", "run", sweep, "lr=0.1"), run("0x2345678", "run", sweep, "lr=0.2"), run("0x3456789", "run"), run("0x4567890", "other")} {
		series = append(series, &plotSeries{file: &plotFile{bundle: b}, value: plotValue{word: "/log.csv:x"}})
	}
	if got := strings.Join(seriesNames(series, false), "; "); got != "run lr=0.1; run lr=0.2; run(0x345678); other" {
		t.Error(got)
	}
	if got := seriesNames(series, true)[3]; got != "other /log.csv:x" {
		t.Error(got)
	}
}

func TestPlotThatHasNothingToDrawSaysSo(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	if err := os.Mkdir(s.dir+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	s.file(t, "d/log.csv", []byte("l\n-1\n-2\n"))
	s.ends(t, 0, "upload", s.dir+"/d")
	if r := s.ends(t, 1, "plot", "/log.csv:l", "--log"); !strings.Contains(r.stderr, "no number is above 0") || r.stdout != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	if r := s.ends(t, 1, "plot", ".count", "/log.csv:l"); !strings.Contains(r.stderr, "Bundles are needed here, and these keywords ask for a number") {
		t.Errorf("%q", r.stderr)
	}
}

// A bundle that the user may not read has no state, and a watch does not wait for it.
func TestWatchOfAPlotWaitsForNoPrivateBundle(t *testing.T) {
	t.Parallel()
	p := newPlotter(&cli{}, nil, plotOptions{}, nil)
	p.bundles = []client.BundleInfo{
		{Bundle: codalab.Bundle{UUID: "0x1", State: codalab.StateReady}}, {Bundle: codalab.Bundle{UUID: "0x2", Type: codalab.TypePrivate}},
	}
	if !p.ended() {
		t.Error("it has not ended")
	}
	p.bundles[0].State = codalab.StateRunning
	if p.ended() {
		t.Error("it has ended")
	}
}
