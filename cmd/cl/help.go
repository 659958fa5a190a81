package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// helpCommand is bundle_cli.py: do_help_command.
func (c *cli) helpCommand(root *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: "help [<command>]", Short: "Show help for a command", Long: "Show help: for a command, or of all commands with -v.",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, cmd := range root.Commands() {
				names = append(names, cmd.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	verbose := cmd.Flags().BoolP("verbose", "v", false, "show the help of all commands")
	markdown := cmd.Flags().BoolP("markdown", "m", false, "with -v, as markdown")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			found, _, err := root.Find(args)
			if err != nil || found == root {
				return unknownCommand(root, args[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		case *verbose:
			return allHelp(c.Stdout, root, *markdown)
		}
		root.InitDefaultHelpFlag()
		return root.Help()
	}
	return cmd
}

// allHelp prints the help of all commands.
func allHelp(w io.Writer, root *cobra.Command, markdown bool) error {
	heading, name, begin, end := "%s:\n\n", "cl %s\n", "", "\n"
	if markdown {
		heading, name, begin, end = "## %s\n\n", "### %s\n\n", "```\n", "```\n\n"
	}
	var text strings.Builder
	for _, g := range root.Groups() {
		fmt.Fprintf(&text, heading, strings.TrimSuffix(g.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID != g.ID || cmd.Hidden {
				continue
			}
			cmd.InitDefaultHelpFlag()
			var help strings.Builder
			cmd.SetOut(&help)
			if err := cmd.Help(); err != nil {
				return fmt.Errorf("help of %s: %w", cmd.Name(), err)
			}
			cmd.SetOut(nil)
			fmt.Fprintf(&text, name, cmd.Name())
			text.WriteString(begin + help.String() + end)
		}
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// absentCommands maps the commands that only CodaLab's own cl has to advice about a replacement.
func absentCommands() map[string]string {
	const stores = "CodaLab's own server keeps contents in partitions, which its administrators change there; cl-server has one directory"
	return map[string]string{
		"mount":            "cl cannot mount bundles. cl cat prints a file of one, and cl download brings a file or directory here.",
		"open":             "cl opens no browser. cl info shows a bundle, and its page is ADDRESS/bundles/UUID.",
		"wopen":            "cl opens no browser. cl print shows a worksheet, and cl work the address of its page.",
		"events":           "only CodaLab's own cl on the server's machine lists events. cl-server writes an audit log.",
		"reset":            "cl deletes no database. Only CodaLab's own cl on the server's machine does.",
		"bs-add-partition": stores + ".",
		"bs-rm-partition":  stores + ".",
		"bs-ls-partitions": stores + ".",
		"bs-health-check":  stores + ": cl-server fsck checks it.",
	}
}

// absentCommand returns a hidden command that fails with an explanation.
func absentCommand(name, why string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true, ValidArgsFunction: cobra.NoFileCompletions,
		Aliases: map[string][]string{"open": {"o"}, "wopen": {"wo"}}[name],
		RunE:    func(*cobra.Command, []string) error { return refusef("%s", why) },
	}
}
