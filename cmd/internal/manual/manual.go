// Package manual writes the manual pages of a program from its commands: NAME.1 for the
// program, NAME-COMMAND.1 for each command, in the macros of man(7).
//
// cobra's own package for it, cobra/doc, reads help texts as Markdown. It would join the lines
// of their tables, and adds 350 KB to each program.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Alone annotates a command that has subcommands and also works without one.
const Alone = "alone"

// Source is the origin that pages state.
type Source struct {
	// Version is that of the program.
	Version string
	Date    time.Time
}

// Write writes the pages of a command and of all below it into dir, which exists. It replaces
// pages that are there. Hidden commands, help and completion have none; help topics are sections
// of the page above them.
func (s Source) Write(dir string, cmd *cobra.Command) error {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var p page
	p.write(cmd, s)
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), p.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write manual: %w", err)
	}
	for _, sub := range cmd.Commands() {
		if hasPage(sub) {
			if err := s.Write(dir, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasPage leaves out the commands that cobra adds.
func hasPage(cmd *cobra.Command) bool {
	return cmd.IsAvailableCommand() && cmd.Name() != "help" && cmd.Name() != "completion"
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is a page that is being written.
type page struct{ bytes.Buffer }

func (p *page) printf(format string, args ...any) {
	fmt.Fprintf(&p.Buffer, format+"\n", args...)
}

func (p *page) write(cmd *cobra.Command, s Source) {
	p.printf(`.TH "%s" "1" "%s" "cl-slurm %s" "cl-slurm"`, escape(strings.ToUpper(pageName(cmd))), s.Date.UTC().Format(time.DateOnly), escape(s.Version))
	p.printf(".nh\n.ad l") // commands are copied: no hyphens and no wide gaps in them
	p.printf(".SH NAME\n%s \\- %s", escape(pageName(cmd)), escape(cmd.Short))
	p.printf(".SH SYNOPSIS\n\\fB%s\\fR%s", escape(cmd.CommandPath()), escape(synopsis(cmd)))
	if len(cmd.Aliases) > 0 {
		p.printf(".br\nOther names of %s: %s", escape(cmd.Name()), escape(strings.Join(cmd.Aliases, ", ")))
	}
	p.printf(".SH DESCRIPTION")
	if cmd.Long != "" {
		p.text(cmd.Long)
	} else {
		p.text(cmd.Short + ".")
	}
	p.commands(cmd)
	p.flags("OPTIONS", cmd.LocalFlags())
	p.flags("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	p.topics(cmd)
	if cmd.HasExample() {
		p.printf(".SH EXAMPLES")
		p.text(cmd.Example)
	}
	if cmd.HasParent() {
		p.printf(".SH SEE ALSO\n.BR %s (1)", escape(pageName(cmd.Parent())))
	}
}

// synopsis returns the part of a command line that follows the command's name.
func synopsis(cmd *cobra.Command) string {
	rest := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	_, alone := cmd.Annotations[Alone]
	switch {
	case !cmd.HasAvailableSubCommands():
	case alone:
		rest = " [COMMAND]" + rest
	default:
		rest = " COMMAND" + rest
	}
	return rest
}

// commands lists the commands below another, in their groups.
func (p *page) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.printf(".SH COMMANDS")
	p.group(cmd, &cobra.Group{})
	for _, group := range cmd.Groups() {
		p.group(cmd, group)
	}
}

// topics writes the help topics of a command.
func (p *page) topics(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAdditionalHelpTopicCommand() {
			p.printf(".SH %s", escape(strings.ToUpper(strings.ReplaceAll(sub.Name(), "-", " "))))
			p.text(sub.Long)
		}
	}
}

// group lists the commands of a group; the one without an ID has no title.
func (p *page) group(cmd *cobra.Command, group *cobra.Group) {
	titled := group.ID == ""
	for _, sub := range cmd.Commands() {
		if sub.GroupID != group.ID || !hasPage(sub) {
			continue
		}
		if !titled {
			p.printf(".SS %s", escape(strings.TrimSuffix(group.Title, ":")))
			titled = true
		}
		p.printf(".TP\n.BR %s (1)\n%s", escape(pageName(sub)), escapeLine(sub.Short))
	}
}

func (p *page) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.printf(".SH %s", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names := `\fB` + escape("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + escape("-"+f.Shorthand) + `\fR, ` + names
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			names += ` \fI` + escape(value) + `\fR`
		}
		switch f.DefValue {
		case "", "0", "0s", "false", "[]": // no default, as in the help
		default:
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		p.printf(".TP\n%s\n%s", names, escapeLine(usage))
	})
}
