// Package program holds the common parts of this project's mains: the process, the exit codes and the
// version.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The exit codes of this project's programs.
const (
	// ExitFailure means that the command was refused, or failed.
	ExitFailure = 1
	// ExitUsage means that the command line cannot be understood.
	ExitUsage = 2
	// ExitTransient means that a server did not answer or is in trouble. The same
	// command may succeed later.
	ExitTransient = 3
	// ExitDenied means that the server refuses the login. Another try with it is of no use, so
	// a service manager must not make one.
	ExitDenied = 4
	// ExitInterrupted means that a signal ended the program.
	ExitInterrupted = 130
)

// Process holds a program's streams, environment and clock.
type Process struct {
	// Args are the arguments without the program's name.
	Args  []string
	Stdin io.Reader
	// Stdout and Stderr escape characters that steer a terminal. termtext.Raw of them is for contents of files that go to
	// no terminal.
	Stdout, Stderr io.Writer
	// Getenv returns a variable of the environment, or nothing.
	Getenv func(string) string
	// Environ is the whole environment, for programs that the user chose, such as an editor.
	Environ []string
	Now     func() time.Time
	// deaf is set while interrupts do not end the program; nil if no goroutine listens to interrupts.
	deaf *atomic.Bool
	// last is the JSON log of the process, which gets the error that ends it; nil if nobody reports that.
	last *atomic.Pointer[slog.Logger]
}

// Uninterrupted calls f. Until f returns, an interrupt from the terminal does not end this program: it is
// meant for a program that f has started, such as an editor.
func (p Process) Uninterrupted(f func() error) error {
	if p.deaf == nil {
		return f()
	}
	p.deaf.Store(true)
	defer p.deaf.Store(false)
	return f()
}

// Alone is [strictmodes.Alone] for the process.
func (p Process) Alone() bool { return strictmodes.Alone(p.Getenv) }

// Log returns a log of text on standard error: all of it with verbose, else without the details.
func (p Process) Log(verbose bool) *slog.Logger { return p.LogAs(LogText, verbose) }

// Print prints a command's result: found as JSON, or else text for people.
func (p Process) Print(asJSON bool, found any, text string) error {
	if asJSON {
		data, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		text = string(data) + "\n"
	}
	_, err := io.WriteString(p.Stdout, text)
	return err
}

// Error is an error with an exit code.
type Error struct {
	Code int
	// Err is printed; nil prints nothing.
	Err error
}

// Error prints the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Usage returns err as an error of the command line, with ExitUsage.
func Usage(err error) error { return &Error{Code: ExitUsage, Err: err} }

// Main runs a program until it returns or a signal ends its context, prints
// its error on standard error, and exits. A second signal ends the process at
// once.
func Main(run func(ctx context.Context, p Process) error) {
	if code, ran := subids.Main(os.Args); ran {
		os.Exit(code)
	}
	ctx, deaf := listen()
	stderr, last := termtext.NewWriter(os.Stderr), &atomic.Pointer[slog.Logger]{}
	err := run(ctx, Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: termtext.NewWriter(os.Stdout), Stderr: stderr,
		Getenv: getenv, Environ: os.Environ(), Now: time.Now, deaf: deaf, last: last,
	})
	code := Code(ctx, err)
	if code != 0 && code != ExitInterrupted {
		report(stderr, last.Load(), err)
	}
	os.Exit(code)
}

// listen returns a context that the first signal ends; a second one ends the process. While deaf is set, it
// ignores interrupts.
func listen() (context.Context, *atomic.Bool) {
	ctx, cancel := context.WithCancel(context.Background())
	deaf := &atomic.Bool{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	background.Detach(func() { // ends with this process
		for s := range signals {
			if s == os.Interrupt && deaf.Load() {
				continue
			}
			signal.Stop(signals)
			cancel()
		}
	})
	return ctx, deaf
}

// getenv returns a variable of the environment. It returns the user's directory for HOME on Windows, too,
// where another variable holds it.
func getenv(name string) string {
	if value := os.Getenv(name); value != "" || name != "HOME" {
		return value
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // as if HOME was not set
	}
	return home
}

// Code returns the exit code for a program's error.
func Code(ctx context.Context, err error) int {
	var coded *Error
	var call *codalab.Error
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &call) && call.Transient():
		return ExitTransient
	}
	return ExitFailure
}

// report prints an error, in one piece. A program with a JSON log, which is not nil, prints it as a line of that: whoever
// collects the lines reads there why the program ended.
func report(w io.Writer, log *slog.Logger, err error) {
	if coded, ok := errors.AsType[*Error](err); ok && coded.Err == nil {
		return
	}
	if log != nil {
		log.Error("the program ends", slog.String("error", err.Error()))
		return
	}
	_, _ = fmt.Fprintln(w, err) // standard error is gone
}

// Root returns the top command of a program. Without a subcommand it prints help; a wrong command line ends
// with ExitUsage.
func Root(p Process, use, short, long string) *cobra.Command {
	root := &cobra.Command{
		Use: use, Short: short, Long: long, Version: Version(), SilenceUsage: true, SilenceErrors: true,
		Args: WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	root.AddCommand(ManCommand(p))
	return root
}

// WrongUsage makes a check of arguments end the program as a wrong flag does.
func WrongUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usage(err)
		}
		return nil
	}
}
