package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// cli is one call of cl.
type cli struct {
	program.Process
	// server is the address in --server.
	server string
	// asJSON makes commands print their results as JSON.
	asJSON bool
	// colour is the value of --color.
	colour colour.When
	state  *stateFile
	// quiet forbids prompts and warnings, as shell completion needs.
	quiet bool
	// drawing is set while a command draws on the whole terminal, so that no other line comes there.
	drawing bool
	// warned has the warnings of servers that cl has printed.
	warned []string
	// fallback is the server if the user has chosen none; cl sets unchosen when it uses fallback.
	fallback string
	unchosen bool
	// draft is the path of a file with text from the user's editor, or empty.
	draft string
	// clients are the servers that were called, by address.
	clients map[string]*client.Client
	// prompt restores the terminal; it is set during a password prompt.
	prompt atomic.Pointer[func()]
	// entered is the password that the user has entered at a prompt; empty if cl has not asked.
	entered string
}

// refusef returns an error with exit code 1, as CodaLab's cl ends, for a request that cl refuses. The text has the form of
// the server's refusals.
func refusef(format string, args ...any) error { return fmt.Errorf("UsageError: "+format, args...) }

func run(ctx context.Context, p program.Process) error {
	return (&cli{Process: p, fallback: defaultAddress}).run(ctx)
}

func (c *cli) run(ctx context.Context) (err error) {
	defer c.restoreTerminal()
	defer func() { c.keepDraft(err) }()
	root := c.root() //nolint:contextcheck // the commands take theirs from ExecuteContext
	args, err := normalizeArgs(root, c.Args)
	if err != nil {
		return err
	}
	root.SetArgs(args)
	root.SetIn(c.Stdin)
	root.SetOut(c.Stdout)
	root.SetErr(c.Stderr)
	err = root.ExecuteContext(ctx)
	if c.unchosen && codalab.IsStatus(err, 0) {
		return &explained{error: err, text: fmt.Sprintf("no server is chosen, and none answers at %s: "+
			"cl work http://SERVER:2900:: chooses one, or set CL_SERVER", c.fallback)}
	}
	return explain(c.tellPlace(ctx, err))
}

const rootHelp = `cl uploads data, runs commands on it on a cluster, and shows the results.

A bundle is a file, a directory or a run; a worksheet is a list of bundles.
Name a bundle by its uuid or the beginning of it, by its name, or by its
position from the end of the worksheet: ^ is the newest, ^2 the one before,
^1-3 the newest three.

  cl work http://SERVER:2900::       use a server
  cl upload data.csv                 make a bundle of a file or directory
  cl run :data.csv 'wc -l data.csv'  run a command on it
  cl wait --tail ^                   watch it run`

// root builds the command line.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "cl",
		Short:             "Run commands on data and keep the results",
		Long:              rootHelp,
		Version:           program.Version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.PersistentFlags().StringVar(&c.server, "server", "", "address of the server, for this command only")
	root.PersistentFlags().BoolVar(&c.asJSON, "json", false, "print JSON, for programs")
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetFlagErrorFunc(commandLineError)
	for _, g := range c.commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	for _, t := range topics() {
		root.AddCommand(t)
	}
	for name, why := range absentCommands() {
		root.AddCommand(absentCommand(name, why))
	}
	root.SetHelpCommand(c.helpCommand(root))
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	root.AddCommand(program.ManCommand(c.Process))
	c.installsCompletion(root)
	cobra.EnableCommandSorting = false
	// A wrong number of arguments counts as a wrong command line, like a wrong flag.
	for _, cmd := range root.Commands() {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if check(cmd, args) != nil {
					return commandLineError(cmd, fmt.Errorf("wrong number of arguments; it is used as %s", cmd.UseLine()))
				}
				return nil
			}
		}
	}
	return root
}

// groupOther is the group of the commands that have no other.
const groupOther = "Other commands"

// group is a group of commands in the help, as CodaLab's own cl groups them (bundle_cli.py:
// BUNDLE_COMMANDS and the lists after it).
type group struct {
	title    string
	commands []*cobra.Command
}

func (c *cli) commandGroups() []group {
	return []group{
		{"Commands for bundles", []*cobra.Command{
			c.uploadCommand(), c.makeCommand(), c.runCommand(), c.sweepCommand(), c.editCommand(), c.detachCommand(), c.rmCommand(), c.duCommand(), c.searchCommand(), c.bestCommand(), c.diffCommand(), c.plotCommand(),
			c.lsCommand(), c.infoCommand(), c.catCommand(), c.waitCommand(), c.notifyCommand(), c.topCommand(), c.downloadCommand(), c.rerunCommand(), c.mimicCommand(), c.macroCommand(),
			c.killCommand(), c.writeCommand(), c.netcatCommand(), c.storeCommand(), c.secretCommand(),
		}},
		{"Commands for worksheets", []*cobra.Command{
			c.newCommand(), c.addCommand(), c.waddCommand(), c.workCommand(), c.printCommand(), c.weditCommand(), c.wrmCommand(), c.wlsCommand(), c.exportCommand(), c.importCommand(),
		}},
		{"Commands for groups and permissions", []*cobra.Command{
			c.glsCommand(), c.gnewCommand(), c.grmCommand(), c.ginfoCommand(), c.uaddCommand(), c.urmCommand(), c.permCommand(),
			c.wpermCommand(), c.chownCommand(), c.offersCommand(),
		}},
		{"Commands for users", []*cobra.Command{
			c.uinfoCommand(), c.usageCommand(), c.ueditCommand(), c.ufarewellCommand(), c.ulsCommand(), c.passwdCommand(), c.sessionsCommand(),
		}},
		{"Commands for the site", []*cobra.Command{c.queuesCommand(), c.workersCommand(), c.tokenCommand()}},
		{groupOther, []*cobra.Command{c.statusCommand(), c.doctorCommand(), c.aliasCommand(), c.configCommand(), c.loginCommand(), c.logoutCommand()}},
	}
}

// commandLineError is the error of a command line that does not parse, with exit code 2 (bundle_cli.py:
// CodaLabArgumentParser.error); with 1 for a size or a time, which CodaLab's cl reads later.
func commandLineError(cmd *cobra.Command, err error) error {
	wrong := fmt.Errorf("%s: error: %w", cmd.CommandPath(), argparse.WrongValue(err))
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if _, ok := invalid.GetFlag().Value.(*spelled); ok {
			return wrong
		}
	}
	return program.Usage(wrong)
}

// unknownCommand is the error for a command that does not exist.
func unknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, cmd := range root.Commands() {
		if !cmd.Hidden {
			names = append(append(names, cmd.Name()), cmd.Aliases...)
		}
	}
	if near := argparse.Nearest(name, names); near != "" {
		return commandLineError(root, fmt.Errorf("there is no command %q: did you mean cl %s?", name, near))
	}
	return commandLineError(root, fmt.Errorf("there is no command %q; cl help lists them", name))
}

// explain formats an error of the server as CodaLab's cl does: the error's name comes first, unless the server denied
// permission or the same call may succeed later (codalab/common.py: http_error_to_exception; bundle_cli.py:
// do_command).
func explain(err error) error {
	var call *codalab.Error
	var wrong *codalab.SpecError
	var done *explained
	switch {
	case errors.As(err, &done):
		return err
	case errors.As(err, &wrong):
		return &explained{error: err, text: "UsageError: " + wrong.Error()}
	case !errors.As(err, &call):
		return err
	}
	name := ""
	switch {
	case errors.Is(call, client.ErrCredentials), call.Status == 403, call.Later:
	case call.Status == 401:
		name = "AuthorizationError: "
	case unknownRoute(call):
		return &explained{error: err, text: fmt.Sprintf("the server does not know %s %s: it is older than CodaLab %s, or no CodaLab server",
			call.Method, call.Path, codalab.Version)}
	case call.Status == 404:
		name = "NotFoundError: "
	case call.Status >= 400 && call.Status < 500:
		name = "UsageError: "
	case call.Status >= 500:
		// CodaLab's own server appends the whole failed SQL statement in further lines.
		first, _, _ := strings.Cut(call.Message, "\n")
		return &explained{error: err, text: "ServerError: " + first}
	}
	return &explained{error: err, text: name + call.Message}
}

// unknownRoute reports whether a server does not know the call that failed.
func unknownRoute(err error) bool {
	call, ok := errors.AsType[*codalab.Error](err)
	return ok && call.UnknownRoute()
}

// explained is an error with another text.
type explained struct {
	error
	text string
}

// Error returns the other text.
func (e *explained) Error() string { return e.text }

// Unwrap returns the error.
func (e *explained) Unwrap() error { return e.error }

// terminal reports whether a stream is a terminal, and returns its descriptor.
func terminal(stream any) (fd int, ok bool) {
	if w, printed := stream.(io.Writer); printed {
		stream = termtext.Raw(w)
	}
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}
