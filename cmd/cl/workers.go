package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// workersCommand is bundle_cli.py: do_workers_command.
func (c *cli) workersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "List the workers that run your bundles",
		Long: "List your workers and those of your groups; as root all of them. A bridge to a\n" +
			"cluster is one worker for each of its queues: tag is the name for --request-queue.",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := c.workspace("")
			if err != nil {
				return err
			}
			workers, err := at.Workers(cmd.Context())
			if err != nil || c.asJSON {
				return c.orJSON(err, append([]codalab.WorkerInfo{}, workers...))
			}
			slices.SortFunc(workers, func(a, b codalab.WorkerInfo) int { return strings.Compare(a.WorkerID, b.WorkerID) })
			return c.listWorkers(workers)
		},
	}
}

func (c *cli) listWorkers(workers []codalab.WorkerInfo) error {
	var columns []column
	for _, name := range []string{
		"worker_id", "cpus", "gpus", "memory", "free_disk", "last_checkin", "group", "tag", "runs", "shared_file_system",
		"tag_exclusive", "exit_after_num_runs", "is_terminating",
	} {
		columns = append(columns, column{name: name})
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	var rows [][]string
	for _, w := range workers {
		var runs []string
		for _, uuid := range w.RunUUIDs {
			runs = append(runs, shortUUID(uuid))
		}
		rows = append(rows, []string{
			w.WorkerID, fmt.Sprintf("%d/%d", w.CPUsInUse, w.CPUs), fmt.Sprintf("%d/%d", w.GPUsInUse, w.GPUs),
			codalab.FormatSize(w.MemoryBytes), codalab.FormatSize(w.FreeDiskBytes),
			codalab.FormatDuration(time.Duration(max(c.Now().Unix()-w.CheckInTime, 0))*time.Second) + " ago",
			text(w.GroupUUID), text(w.Tag), strings.Join(runs, ","), codalab.PythonStr(w.SharedFileSystem), codalab.PythonStr(w.TagExclusive),
			fmt.Sprint(w.ExitAfterNumRuns), codalab.PythonStr(w.IsTerminating),
		})
	}
	return printTable(c.Stdout, columns, rows)
}
