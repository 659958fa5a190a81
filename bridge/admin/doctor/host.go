package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// hostWithin is a bound for the trial of this host, which takes a third of a second.
const hostWithin = 30 * time.Second

// LogHost runs [Host], and logs a result that is not OK.
func LogHost(logger *slog.Logger) func(ctx context.Context, worker string) {
	return func(ctx context.Context, worker string) {
		if c := Host(ctx, worker, hostWithin); c.Verdict != OK && ctx.Err() == nil {
			logger.WarnContext(ctx, "probing this host failed", slog.String("reason", c.Found), slog.String("advice", c.Do))
		}
	}
}

// Host runs the cl-worker of jobs on this host, and has it try what it takes to run a
// container, within this time. That is a hint only, and never a failure: nodes may allow more than a
// login node, or less.
func Host(ctx context.Context, worker string, within time.Duration) Check {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	probing := command.Command{Args: []string{worker, "probe", "--json"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, Group: true}
	out, err := probing.Output(ctx)
	var r probe.Report
	var failed *command.Error
	byHand := "try by hand: " + worker + " probe"
	switch {
	case json.Unmarshal(out, &r) == nil && r.Node != "":
		return host(r)
	case errors.As(err, &failed) && !failed.Started():
		return warning("host", "the cl-worker of jobs cannot be run here: "+err.Error(),
			"if nodes cannot run it either, every job fails: is the shared directory's disk mounted with noexec?")
	case ctx.Err() != nil:
		return warning("host", fmt.Sprintf("the cl-worker of jobs, %s, did not report within %s, and was stopped", worker, codalab.SpellDuration(within)),
			"this host may be slow: "+byHand)
	case err != nil:
		return warning("host", "the cl-worker of jobs fails here: "+err.Error(), byHand)
	}
	return warning("host", fmt.Sprintf("the cl-worker of jobs, %s, prints a report that this cl-bridge cannot read", worker), "name the cl-worker of this release as worker")
}

// host judges this host as nodes are judged.
func host(r probe.Report) Check {
	const do = "nodes may differ: cl-bridge doctor tries one of each queue"
	switch {
	case r.Choice != nil:
		return ok("host", "%s, a login node, could run containers by %s", r.Node, r.Choice.Runtime)
	case r.Error == "":
		return warning("host", fmt.Sprintf("%s, a login node, could not be tried: %s", r.Node, trimDot(r.Scratch)), do)
	}
	return warning("host", fmt.Sprintf("%s, a login node, could not run containers: %s", r.Node, trimDot(r.Error)), do)
}
