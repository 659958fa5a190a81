package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// hostWithin bounds the trial of this host, which takes a third of a second.
const hostWithin = 30 * time.Second

// Host runs the cl-worker of jobs on this host, and has it try what it takes to run a
// container. That is a hint only, and never a failure: nodes may allow more than a
// login node, or less.
func Host(ctx context.Context, worker string) Check {
	ctx, cancel := context.WithTimeout(ctx, hostWithin)
	defer cancel()
	out, err := command.Command{Args: []string{worker, "probe", "--json"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}}.Output(ctx)
	var r probe.Report
	var failed *command.Error
	switch {
	case json.Unmarshal(out, &r) == nil && r.Node != "":
		return host(r)
	case errors.As(err, &failed) && !failed.Started():
		return warning("host", "the cl-worker of jobs cannot be run here: "+err.Error(),
			"if nodes cannot run it either, every job fails: is the shared directory's disk mounted with noexec?")
	}
	return warning("host", fmt.Sprintf("the cl-worker of jobs, %s, says nothing of this host: %v", worker, err), "is it the cl-worker of this build?")
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
