package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// completeFlags sets shell completion for the flags of a command: few values are file names. The word for a value in a
// flag's help says whether it is one.
func completeFlags(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch word, _ := pflag.UnquoteUsage(f); word {
		case "file", "program":
			return
		case "directory":
			complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		case "runtime":
			complete = cobra.FixedCompletions([]cobra.Completion{runtimeDocker, runtimeKubernetes}, cobra.ShellCompDirectiveNoFileComp)
		case "form":
			complete = cobra.FixedCompletions([]cobra.Completion{string(program.LogText), string(program.LogJSON)}, cobra.ShellCompDirectiveNoFileComp)
		case "network":
			complete = cobra.FixedCompletions(networkChoices(), cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // it has none yet
	})
}

// completeWithin bounds the time for which a shell waits for the names of workers.
const completeWithin = 5 * time.Second

// completeWorkers completes the first argument with the workers that have not ended.
func (l *workersCommand) completeWorkers(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	b, err := l.openFound(ctx)
	var pilots []pilot.Pilot
	if err == nil {
		pilots, err = b.Pilots(ctx)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, p := range alive(pilots) {
		if name := shortName(p.Name); strings.HasPrefix(name, begin) {
			names = append(names, cobra.CompletionWithDesc(name, p.State+on(p.Node)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
