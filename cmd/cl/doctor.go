package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/checklist"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

const clDoctorHelp = `Check what cl needs, and print a line for each thing: ok, warning or failed, what
cl found, and what to do. It asks for no password and changes nothing.

Exit codes: 0 nothing failed; 1 something did; 3 the server does not answer, and
nothing else failed.`

// examination is one call of `cl doctor`.
type examination struct {
	*cli
	checks []checklist.Check
}

// doctorCommand has no model in CodaLab's own cl.
func (c *cli) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the server, your login, your quota and this computer", Long: clDoctorHelp,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.quiet = true // no prompts
			x := &examination{cli: c}
			x.here()
			x.server(cmd.Context())
			return x.end(cmd.Context())
		},
	}
}

// add prints a check at once.
func (x *examination) add(c checklist.Check) {
	x.checks = append(x.checks, c)
	if x.asJSON {
		return
	}
	_ = x.print(c.Line()) // fails only if standard output is gone
}

func (x *examination) ok(name, format string, args ...any) {
	x.add(checklist.Passed(name, format, args...))
}

func (x *examination) warning(name, found, do string) {
	x.add(checklist.Fault(checklist.Warning, name, found, "", do))
}

func (x *examination) failed(name, found, do string) {
	x.add(checklist.Fault(checklist.Failed, name, found, "", do))
}

// away adds a failed check of something that did not answer.
func (x *examination) away(name, found, do string) {
	c := checklist.Fault(checklist.Failed, name, found, "", do)
	c.Unreachable = true
	x.add(c)
}

// doctorView is the output of `cl doctor`, in JSON.
type doctorView struct {
	Verdict checklist.Verdict `json:"verdict"`
	Checks  []checklist.Check `json:"checks"`
}

func (x *examination) end(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := program.ChecksError(x.checks)
	if x.asJSON {
		v := doctorView{checklist.OK, x.checks}
		if failed != nil {
			v.Verdict = checklist.Failed
		}
		if err := x.printJSON(v); err != nil {
			return err
		}
	}
	return failed
}

// here checks this computer.
func (x *examination) here() {
	x.ok("cl", "%s, on %s/%s", program.Version(), runtime.GOOS, runtime.GOARCH)
	x.home()
	x.completion()
	x.editor()
	x.terminal()
}

func (x *examination) home() {
	dir, err := x.cli.home()
	if err == nil {
		_, err = x.load()
	}
	if err == nil {
		_, err = x.loadConfig()
	}
	if err != nil {
		x.failed("home", err.Error(), "without it cl forgets the server and the login after each call")
		return
	}
	x.ok("home", "cl keeps its server and its login in %s", dir)
}

func (x *examination) completion() {
	p, err := x.completionPlace("")
	if err != nil {
		x.ok("completion", "not checked: cl knows no shell by the name in SHELL")
		return
	}
	switch done, err := p.completes(); {
	case err != nil:
		x.warning("completion", err.Error(), "cl completion "+p.shell+" prints the script")
	case done:
		x.ok("completion", "%s completes cl (%s)", p.shell, p.path)
	default:
		x.warning("completion", p.path+" has no completion of cl, unless something else brings it", "cl completion --install")
	}
}

func (x *examination) editor() {
	editor, from := x.Getenv("EDITOR"), "EDITOR"
	if editor == "" {
		editor, from = x.Getenv("VISUAL"), "VISUAL"
	}
	if editor == "" {
		editor, from = defaultEditor, "the default"
	}
	words := strings.Fields(editor)
	if len(words) == 0 {
		words = []string{editor}
	}
	if _, err := command.Find(words[0]); err != nil {
		x.warning("editor", words[0]+" ("+from+") is not there, so cl edit and cl wedit cannot open it", "set EDITOR to an editor that is installed")
		return
	}
	x.ok("editor", "%s (%s)", filepath.Base(words[0]), from)
}

func (x *examination) terminal() {
	_, is := terminal(x.Stdout)
	switch {
	case !is:
		x.ok("terminal", "standard output is no terminal: cl prints no colours and no progress there")
	case x.Getenv("TERM") == "dumb" || x.Getenv("TERM") == "":
		x.warning("terminal", "TERM says that the terminal can do nothing", "set TERM to its kind, such as xterm-256color")
	case bool(x.palette(x.Stdout)):
		x.ok("terminal", "%s, with colours; NO_COLOR=1 turns them off", x.Getenv("TERM"))
	default:
		x.ok("terminal", "%s, without colours", x.Getenv("TERM"))
	}
}

// lookWithin bounds the first question to the server.
const lookWithin = 15 * time.Second

// sight is what one answer of the server shows beside its contents.
type sight struct {
	header         http.Header
	tls            *tls.ConnectionState
	sent, received time.Time
}

// look asks the server for its user without a login, to see the answer's headers and the connection.
func (x *examination) look(ctx context.Context, address string) (s sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/rest/user", nil)
	if err != nil {
		return s, fmt.Errorf("ask the server: %w", err)
	}
	req.Header.Set("X-Requested-With", "XMLHttpRequest")
	s.sent = x.Now()
	resp, err := http.DefaultClient.Do(req)
	s.received = x.Now()
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the caller's message has the address already
		}
		return s, err
	}
	s.header, s.tls = resp.Header, resp.TLS
	return s, resp.Body.Close()
}
