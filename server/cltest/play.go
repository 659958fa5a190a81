package cltest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Client is a cl, CodaLab's own or ours, and the workers that its scripts start.
type Client struct {
	// Users are those of the scripts, by role: ann, ben and root.
	Users map[string]User
	// Command returns a command that runs cl. Play sets its directory and its streams, and adds
	// variables to its environment.
	Command func(ctx context.Context, c Call) *exec.Cmd
	// StartWorker starts a worker, which ends with ctx at the latest.
	StartWorker func(ctx context.Context, w WorkerCall) (Worker, error)
	// Patience limits the duration of a step.
	Patience time.Duration

	homes *homes
}

// User is a user of a server.
type User struct{ Name, Password string }

// Call is one call of cl.
type Call struct {
	Address string
	User    User
	// Home is a directory for the user's state in this play; it may not exist yet.
	Home string
	Args []string
}

// WorkerCall is the start of a worker of a user.
type WorkerCall struct {
	Address string
	User    User
	ID      string
	// Dir is the script's directory, in which the worker may make files whose names end in its
	// id.
	Dir  string
	Args []string
	// Measures lets a shell worker tell numbers of processors, memory and GPUs that its runs use.
	Measures bool
}

// Worker is a worker that runs.
type Worker interface {
	// Pause makes it hang, and Resume lets it go on.
	Pause() error
	Resume() error
	// Stop ends it, also when it hangs, and waits for its end.
	Stop() error
}

// play is one script on one server.
type play struct {
	Client
	t         *testing.T
	address   string
	dir, home string
	r         string
	variables map[string]string
	workers   map[string]Worker
	seen      *names
}

// Play plays a script on the server at an address. It returns the outputs of the steps, with the
// masks applied. The test fails if a step fails for another reason than cl.
func (c Client) Play(t *testing.T, s Script, address string) []string {
	t.Helper()
	word, prefix := make([]byte, 3), make([]byte, 8)
	_, _ = rand.Read(word) // neither fails
	_, _ = rand.Read(prefix)
	port, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, dir := "r"+hex.EncodeToString(word), t.TempDir()
	p := &play{
		Client: c, t: t, address: address, dir: dir, home: t.TempDir(), r: r, workers: map[string]Worker{},
		variables: map[string]string{"R": r, "dir": dir, "url": address, "nl": "\n", "port": port, "prefix": "0x" + hex.EncodeToString(prefix)},
		seen:      &names{known: map[string]string{}},
	}
	for role, user := range c.Users {
		p.variables[role] = user.Name
	}
	p.seen.replace(address, "<server>", dir, "<dir>", r, "<R>")
	defer p.stopAll()
	var printed []string
	for _, step := range s.steps {
		before := time.Now()
		text, err := p.runStep(step)
		if err != nil {
			t.Errorf("%s: %s on %s: %v\n%s", step.where, step.text, address, err, text)
		}
		if took := time.Since(before); took > 5*time.Second {
			t.Logf("%s: %s on %s took %s", step.where, step.text, address, took)
		}
		printed = append(printed, p.seen.in(text))
	}
	return printed
}

// freePort returns a port on which nobody listens.
func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

func (p *play) runStep(s step) (string, error) {
	words, err := split(s.text, p.variables)
	if err != nil {
		return "", err
	}
	switch words[0] {
	case "sh":
		return "", p.shell(strings.TrimPrefix(s.text, "sh "))
	case "worker":
		return "", p.worker(words[1:])
	case "hears":
		return p.repeat(words[2:], func(out string) bool {
			stdout, _, _ := strings.Cut("\n"+out, "\n! ")
			return strings.Contains(stdout, words[1])
		})
	case "until":
		args := []string{words[2], "info", "-f", "state", words[3]}
		return p.repeat(args, func(out string) bool { return strings.HasPrefix(out, words[1]+"\n") })
	}
	out, err := p.runWithRetry(words)
	if err != nil || s.save == "" {
		return out, err
	}
	stdout, _, _ := strings.Cut(out, "\n! ")
	id := identifier().FindString(stdout)
	if id == "" {
		id = "no-" + s.save
	}
	p.variables[s.save] = id
	p.seen.know(id, s.save)
	return out, nil
}

// repeat runs cl until heard accepts its output. It ends early if the bundle does not exist. A
// missing path of a running bundle may still appear.
func (p *play) repeat(words []string, heard func(string) bool) (string, error) {
	deadline := time.Now().Add(p.Patience)
	for {
		out, err := p.runWithRetry(words)
		absent := strings.Contains(out, "NotFoundError: ") && !strings.Contains(out, "NotFoundError: Path ")
		if err != nil || heard(out) || absent || time.Now().After(deadline) {
			return out, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// runWithRetry runs cl. It repeats the call if another cl was just writing the tokens of their common
// home, which CodaLab's own cl does in place (codalab/lib/codalab_manager.py: save_state).
func (p *play) runWithRetry(words []string) (string, error) {
	for try := 1; ; try++ {
		out, err := p.runOnce(words)
		if try == 5 || !strings.HasPrefix(out, "Invalid JSON in ") {
			return out, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// runOnce returns the output of a step.
func (p *play) runOnce(words []string) (string, error) {
	user, isUser := p.Users[words[0]]
	if !isUser || len(words) < 2 {
		return "", fmt.Errorf("unknown step %q", words)
	}
	defer p.homes.use(p.address+" "+user.Name, words[1])()
	ctx, cancel := context.WithTimeout(p.t.Context(), p.Patience)
	defer cancel()
	cmd := p.Command(ctx, Call{Address: p.address, User: user, Home: filepath.Join(p.home, words[0]), Args: words[1:]})
	cmd.Dir = p.dir
	cmd.Env = append(cmd.Environ(), "CODALAB_SESSION="+p.r, "EDITOR="+filepath.Join(p.dir, "editor"), "COLUMNS=200")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run cl: %w", err)
	}
	out := stdout.String()
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	out += errorLines(stderr.String())
	if exit != nil {
		out += fmt.Sprintf("exit %d\n", exit.ExitCode())
	}
	if ctx.Err() != nil {
		return out, fmt.Errorf("cl does not end: %w", ctx.Err())
	}
	return out, nil
}

// errorLines returns the lines of standard error as a step prints them.
func errorLines(text string) string {
	out := ""
	said := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range said {
		if strings.HasPrefix(line, "Traceback ") { // of a cl that did not expect such an answer
			return out + "! Traceback\n! " + said[len(said)-1] + "\n"
		}
		if line = strings.TrimSpace(line); line != "" {
			out += "! " + line + "\n"
		}
	}
	return out
}

func (p *play) shell(command string) error {
	cmd := exec.CommandContext(p.t.Context(), "bash", "-ec", command)
	cmd.Dir = p.dir
	cmd.Env = os.Environ()
	for name, value := range p.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p *play) worker(words []string) error {
	verb, id := words[0], words[1]
	if verb == "start" {
		w, err := p.StartWorker(p.t.Context(), WorkerCall{
			Address: p.address, User: p.Users["ann"], ID: id, Dir: p.dir, Args: words[2:],
		})
		if err == nil {
			p.workers[id] = w
		}
		return err
	}
	w := p.workers[id]
	if w == nil {
		return fmt.Errorf("there is no worker %s", id)
	}
	switch verb {
	case "pause":
		return w.Pause()
	case "resume":
		return w.Resume()
	case "stop":
		delete(p.workers, id)
		return w.Stop()
	}
	return fmt.Errorf("unknown step: worker %s", verb)
}

// stopAll ends the workers that a failed script has left.
func (p *play) stopAll() {
	for id, w := range p.workers {
		if err := w.Stop(); err != nil {
			p.t.Errorf("worker %s: %v", id, err)
		}
	}
}
