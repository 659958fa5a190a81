// Package callmetrics counts the runs of Slurm's commands, for Prometheus.
package callmetrics

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
)

// Calls counts the runs of Slurm's commands, with their durations and failures. It is safe for concurrent use.
type Calls struct {
	prefix string
	now    func() time.Time

	mu       sync.Mutex
	took     map[string]*exposition.Histogram
	failures map[string]int
}

// New returns Calls whose metrics' names begin with a prefix, such as cl_bridge_.
func New(prefix string, now func() time.Time) *Calls {
	return &Calls{prefix: prefix, now: now, took: map[string]*exposition.Histogram{}, failures: map[string]int{}}
}

// Begin counts the begin of a command. It is for sbatch.Client.Watch.
func (c *Calls) Begin(name string) (ended func(answered bool)) {
	began := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took[name]
	if took == nil {
		took = exposition.NewHistogram(0.01, 3, 9)
		c.took[name] = took
	}
	return func(answered bool) {
		took.Observe(c.now().Sub(began).Seconds())
		if !answered {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failures[name]++
		}
	}
}

// Command has the counts of one command.
type Command struct {
	Name     string
	Took     exposition.Counts
	Failures int
}

// Commands returns the counts of the commands that have been run, by name.
func (c *Calls) Commands() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Command
	for _, name := range slices.Sorted(maps.Keys(c.took)) {
		all = append(all, Command{name, c.took[name].Counts(), c.failures[name]})
	}
	return all
}

// Durations describes the metric of the commands' durations, and Failures that of their failures.
func (c *Calls) Durations() exposition.Desc {
	return exposition.HistogramDesc(c.prefix+"slurm_call_duration_seconds", "Duration of the runs of Slurm's commands, by command.", "command")
}

// Failures describes the metric of the commands that failed.
func (c *Calls) Failures() exposition.Desc {
	return exposition.Desc{
		Name: c.prefix + "slurm_call_failures_total", Help: "Runs of Slurm's commands that failed, by command. The refusal of a job is no failure.",
		Kind: exposition.Counter, Labels: []string{"command"},
	}
}

// AddTo adds the metrics to a text.
func (c *Calls) AddTo(t *exposition.Text) {
	for _, one := range c.Commands() {
		t.AddHistogram(c.Durations(), one.Took, one.Name)
		t.Add(c.Failures(), float64(one.Failures), one.Name)
	}
}
