package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/spelling"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/selfcall"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The bounds of a command.
const (
	within        = 30 * time.Second
	mostOutput    = 256 << 10
	mostOfOneUser = 4 // at a time
	// mostAnswer bounds an answer to a command's request in memory, in bytes.
	mostAnswer = 8 << 20
)

// Terminal executes command lines.
type Terminal struct {
	Log *slog.Logger

	mu sync.Mutex
	// running is the number of commands that a user has under way, by the user's id.
	running map[string]int
}

// Routes returns the route for command lines, whose requests the handler serves. It is the server's own.
func (t *Terminal) Routes(handler http.Handler) []rest.Route {
	serve := func(w http.ResponseWriter, r *http.Request, u store.User) error { return t.serve(handler, w, r, u) }
	return []rest.Route{{Pattern: "POST /cli/command", Serve: serve, Differs: "only what the web page needs: " +
		strings.Join(names(), ", ") + "; none of them reads a file of the server or starts a program; a command ends after 30 seconds, and prints 256 KiB at most; " +
		"a wrong command line is refused; there are no completions"}}
}

// request is a request for a command.
type request struct {
	Worksheet    *string         `json:"worksheet_uuid"`
	Command      json.RawMessage `json:"command"`
	Autocomplete bool            `json:"autocomplete"`
}

// words are those of the command line, without cl before them.
func (in request) words() ([]string, error) {
	var line string
	var words []string
	if json.Unmarshal(in.Command, &line) == nil {
		var err error
		if words, err = codalab.SplitWords(line); err != nil {
			return nil, wrong("%s.", err)
		}
	} else if json.Unmarshal(in.Command, &words) != nil {
		return nil, wrong("command must be a text, or a list of words.")
	}
	if len(words) > 0 && words[0] == "cl" {
		words = words[1:]
	}
	return words, nil
}

// answer is the answer of a command (codalab/rest/cli.py: general_command).
type answer struct {
	// Result tells the page what to do next, or which bundles the output names; nil for nothing.
	Result map[string]any `json:"structured_result"`
	Output string         `json:"output"`
}

// serve executes a command line as its user (codalab/rest/cli.py: post_worksheets_command).
func (t *Terminal) serve(handler http.Handler, w http.ResponseWriter, r *http.Request, u store.User) error {
	var in request
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	if in.Command == nil {
		return wrong("Missing `command`")
	}
	if in.Autocomplete {
		return rest.WriteJSON(w, http.StatusOK, map[string]any{"completions": []string{}})
	}
	words, err := in.words()
	if err != nil {
		return err
	}
	leave, err := t.enter(u.ID)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	at, err := selfcall.Transport{Handler: handler, From: r, Log: t.Log, Most: mostAnswer}.Client()
	if err != nil {
		return err
	}
	s := session{Client: at, worksheet: rest.Deref(in.Worksheet), user: u}
	if err := execute(ctx, &s, words); err != nil {
		return refusal(ctx, err)
	}
	return rest.WriteJSON(w, http.StatusOK, answer{Result: s.result, Output: s.output.String()})
}

// enter counts a command of a user until leave is called.
func (t *Terminal) enter(user string) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[user] >= mostOfOneUser {
		return nil, rest.Refuse(http.StatusTooManyRequests, "%d of your commands run already. Try again later.", mostOfOneUser)
	}
	if t.running == nil {
		t.running = map[string]int{}
	}
	t.running[user]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.running[user]--; t.running[user] == 0 {
			delete(t.running, user)
		}
	}, nil
}

// execute executes a command line.
func execute(ctx context.Context, s *session, words []string) error {
	if len(words) == 0 {
		words = []string{"help"}
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == words[0] })
	if i < 0 {
		return unknown(words[0])
	}
	c := all[i]
	g, err := read(c.options(), words[1:])
	switch {
	case err != nil:
		return err
	case len(g.arguments) < c.least || c.most >= 0 && len(g.arguments) > c.most:
		return wrong("Wrong number of arguments; it is used as %s", c.usage())
	}
	return c.run(ctx, s, g)
}

// unknown refuses a command that there is not.
func unknown(name string) error {
	if near := spelling.Nearest(name, names()); near != "" {
		return wrong("There is no command '%s': did you mean %s?", name, near)
	}
	return wrong("The web page has no command '%s'. It has %s. Use cl on your own machine for all others.", name, strings.Join(names(), ", "))
}

// refusal makes a refusal of a command's error: the server's own, or that of a command that takes too long.
func refusal(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*codalab.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return wrong("The command takes longer than %s, and was given up. A part of it may be done.", codalab.FormatDuration(within))
	case ok && refused.Status >= http.StatusBadRequest:
		return rest.Refuse(refused.Status, "%s", refused.Message)
	}
	return err
}

// session is one command under way.
type session struct {
	*client.Client
	worksheet string // the uuid of the page's worksheet; empty for none
	user      store.User
	output    strings.Builder
	full      bool
	result    map[string]any
}

// print adds lines to the output, as far as they have room.
func (s *session) print(lines ...string) {
	for _, line := range lines {
		switch {
		case s.full:
		case s.output.Len()+len(line) >= mostOutput:
			s.full = true
			s.output.WriteString("... (there is more)\n")
		default:
			s.output.WriteString(line + "\n")
		}
	}
}

// do has the page do something, after what it does already (codalab/lib/ui_actions.py).
func (s *session) do(action string, parameter any) {
	before, _ := s.result["ui_actions"].([][]any)
	s.result = map[string]any{"ui_actions": append(before, []any{action, parameter})}
}

// onWorksheet is the page's worksheet. It fails without one.
func (s *session) onWorksheet() (string, error) {
	if s.worksheet == "" {
		return "", wrong("The command needs a worksheet: open one.")
	}
	return s.worksheet, nil
}
