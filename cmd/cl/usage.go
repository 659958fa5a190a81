package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const usageHelp = `Show what your runs have used: their CPU-hours and GPU-hours, and the shares of
them that their commands used, by queue; and their energy, where their sites
measure it.

It counts the runs that you created since a time and that are still there, also
those that run now. CPU-hours are the requested CPUs times the time for which a
run had them; with CodaLab's own server, times the time of its command.

  cl usage
  cl usage --since 7d
  cl usage --since 2042-03-14`

// usageCommand has no model in CodaLab's own cl.
func (c *cli) usageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "usage", Short: "Show the CPU-hours and GPU-hours of your runs", Long: usageHelp,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	since := cmd.Flags().String("since", "30d", "count the runs that were created at this `time` or later")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := readSince(*since, c.Now())
		if err != nil {
			return err
		}
		return c.showUsage(cmd.Context(), from)
	}
	return cmd
}

// readSince reads a time before now, such as 7d, or a date.
func readSince(s string, now time.Time) (time.Time, error) {
	if day, err := time.ParseInLocation(time.DateOnly, s, now.Location()); err == nil {
		return day, nil
	}
	d, err := codalab.ParseDuration(s)
	if err != nil || d <= 0 {
		return time.Time{}, refusef("--since: %q is no time: want one such as 12h, 30d or 2042-03-14", s)
	}
	return now.Add(-d), nil
}

// runsUsage is the use of some runs.
type runsUsage struct {
	Queue         string   `json:"queue"`
	Runs          int      `json:"runs"`
	Failed        int      `json:"failed"`
	Active        int      `json:"active"`
	CPUHours      float64  `json:"cpu_hours"`
	CPUEfficiency *float64 `json:"cpu_efficiency"`
	GPUHours      float64  `json:"gpu_hours"`
	GPUUsage      *float64 `json:"gpu_usage"`
	QueuedSeconds float64  `json:"queued_seconds"`
	// EnergyJoules is nil if no run's energy was measured.
	EnergyJoules *int64 `json:"energy_joules"`

	cpuUsed, gpuMeasured, gpuUsed float64 // hours
}

// usageView is the output of cl usage, in JSON.
type usageView struct {
	Since  string      `json:"since"`
	Total  runsUsage   `json:"total"`
	Queues []runsUsage `json:"queues"`
}

func (c *cli) showUsage(ctx context.Context, since time.Time) error {
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	runs, err := at.runsSince(ctx, since)
	if err != nil {
		return err
	}
	v := sumUsage(runs)
	v.Since = since.UTC().Format(time.RFC3339)
	if c.asJSON {
		return c.printJSON(v)
	}
	if v.Total.Runs == 0 {
		return c.print("You have created no runs since " + clockTime(since) + ".")
	}
	return c.printUsage(v)
}

// runsSince returns the user's own runs that were created at a time or later.
func (w *workspace) runsSince(ctx context.Context, since time.Time) ([]client.BundleInfo, error) {
	// A server may read the date in a time zone of its own.
	found, err := w.everyBundle(ctx, bundleQuery{keywords: []string{
		".mine", "type=" + codalab.TypeRun, ".after=" + since.Add(-24*time.Hour).UTC().Format(time.DateOnly),
	}})
	return slices.DeleteFunc(found, func(b client.BundleInfo) bool {
		return b.Metadata.Time("created").Before(since.Truncate(time.Second))
	}), err
}

func sumUsage(runs []client.BundleInfo) usageView {
	v := usageView{Queues: []runsUsage{}}
	queues := map[string]*runsUsage{}
	for _, b := range runs {
		name := b.Metadata.String("request_queue")
		if queues[name] == nil {
			queues[name] = &runsUsage{Queue: name}
		}
		queues[name].add(b.Bundle)
		v.Total.add(b.Bundle)
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		v.Queues = append(v.Queues, queues[name].finished())
	}
	v.Total = v.Total.finished()
	return v
}

func (u *runsUsage) add(b codalab.Bundle) {
	u.Runs++
	switch {
	case !b.State.Final():
		u.Active++
	case b.State != codalab.StateReady:
		u.Failed++
	}
	m := b.Metadata
	had := m.Float("time") / 3600
	if b.Cost != nil {
		had = b.Cost.AllocatedSeconds / 3600
		u.QueuedSeconds += b.Cost.QueuedSeconds
	}
	u.CPUHours += had * max(m.Float("request_cpus"), 1)
	u.cpuUsed += (m.Float("time_user") + m.Float("time_system")) / 3600
	gpus := had * m.Float("request_gpus")
	u.GPUHours += gpus
	if b.Cost != nil && b.Cost.GPUs != nil {
		u.gpuMeasured += gpus
		u.gpuUsed += gpus * b.Cost.GPUs.Busy
	}
	if b.Cost != nil && b.Cost.EnergyJoules > 0 {
		joules := b.Cost.EnergyJoules
		if u.EnergyJoules != nil {
			joules += *u.EnergyJoules
		}
		u.EnergyJoules = &joules
	}
}

// finished returns the use with its shares.
func (u runsUsage) finished() runsUsage {
	if u.CPUHours > 0 {
		share := min(1, u.cpuUsed/u.CPUHours)
		u.CPUEfficiency = &share
	}
	if u.gpuMeasured > 0 {
		share := u.gpuUsed / u.gpuMeasured
		u.GPUUsage = &share
	}
	return u
}

func (c *cli) printUsage(v usageView) error {
	columns := []column{{name: "queue"}}
	names := []string{"runs", "failed", "active", "cpu_hours", "cpu_used", "gpu_hours", "gpu_used", "queued"}
	if v.Total.EnergyJoules != nil {
		names = append(names, "energy")
	}
	for _, name := range names {
		columns = append(columns, column{name: name, right: true})
	}
	percent := func(share *float64) string {
		if share == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f %%", 100**share)
	}
	var rows [][]string
	total := v.Total
	total.Queue = "(all)"
	for _, u := range append(slices.Clone(v.Queues), total) {
		name := u.Queue
		if name == "" {
			name = "(none named)"
		}
		row := []string{
			name, strconv.Itoa(u.Runs), strconv.Itoa(u.Failed), strconv.Itoa(u.Active), fmt.Sprintf("%.2f", u.CPUHours), percent(u.CPUEfficiency),
			fmt.Sprintf("%.2f", u.GPUHours), percent(u.GPUUsage), codalab.FormatDuration(time.Duration(u.QueuedSeconds * float64(time.Second))),
		}
		switch {
		case v.Total.EnergyJoules == nil: // it has no column
		case u.EnergyJoules == nil:
			row = append(row, "-")
		default:
			row = append(row, codalab.FormatEnergy(*u.EnergyJoules))
		}
		rows = append(rows, row)
	}
	return printTable(c.Stdout, columns, rows)
}
