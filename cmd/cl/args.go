package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// normalizeArgs rewrites a command line that Python's argparse accepts for pflag. The words after "---"
// are a command, which becomes one argument (bundle_cli.py: collapse_bare_command). The options come first in the result, then
// "--" and the arguments.
func normalizeArgs(root *cobra.Command, args []string) ([]string, error) {
	if i := slices.Index(args, "---"); i >= 0 {
		command := codalab.JoinWords(args[i+1:])
		args = slices.Clone(args[:i])
		if !slices.Contains(args, "--") {
			args = append(args, "--")
		}
		args = append(args, command)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	verb := verbOf(root, args)
	if verb < 0 || strings.HasPrefix(args[verb], "__complete") {
		return args, nil
	}
	cmd, _, err := root.Find(args[verb : verb+1])
	switch {
	case err != nil || cmd == root:
		return nil, unknownCommand(root, args[verb])
	case cmd.HasSubCommands() || cmd.DisableFlagParsing:
		return args, nil
	}
	options, arguments, err := argparse.Read(cmd, slices.Concat(args[:verb], args[verb+1:]))
	if err != nil {
		return nil, commandLineError(cmd, err)
	}
	return slices.Concat([]string{args[verb]}, options, []string{"--"}, arguments), nil
}

// verbOf returns the index of the command's name, -1 if there is none.
func verbOf(root *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return -1
		case !strings.HasPrefix(args[i], "-"):
			return i
		}
		if f := root.PersistentFlags().Lookup(strings.TrimPrefix(args[i], "--")); f != nil && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return -1
}
