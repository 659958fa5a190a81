package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	commandLimit = 3 * time.Minute
	// patience is how long a step waits for a state or a text.
	patience = 100 * time.Second
)

// step is a line of a script.
type step struct {
	where, text string
	// save is the variable that keeps the first identifier that cl prints.
	save string
}

func readScript(t *testing.T, path string) []step {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var steps []step
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s := step{where: fmt.Sprintf("%s:%d", path, i+1), text: line}
		if m := regexp.MustCompile(`^([a-z]\w*) = (.*)$`).FindStringSubmatch(line); m != nil {
			s.save, s.text = m[1], m[2]
		}
		steps = append(steps, s)
	}
	return steps
}

// homes guards the files of cl's homes, of which cl cannot bear two writers. The keys are
// addresses and users.
type homes struct {
	mu    sync.Mutex
	locks map[string]*sync.RWMutex
}

func (h *homes) of(key string) (lock *sync.RWMutex, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.locks == nil {
		h.locks = map[string]*sync.RWMutex{}
	}
	lock, known := h.locks[key]
	if !known {
		lock = &sync.RWMutex{}
		h.locks[key] = lock
	}
	return lock, !known
}

// play is one script on one server.
type play struct {
	client
	t         *testing.T
	address   string
	dir       string
	r         string
	variables map[string]string
	workers   map[string]*exec.Cmd
	seen      *names
}

func (c client) newPlay(t *testing.T, address, r string) *play {
	t.Helper()
	dir := t.TempDir()
	p := &play{
		client: c, t: t, address: address, dir: dir, r: r, workers: map[string]*exec.Cmd{},
		variables: map[string]string{"R": r, "dir": dir, "url": address, "nl": "\n"},
		seen:      &names{known: map[string]string{}},
	}
	for role, name := range c.names {
		p.variables[role] = name
	}
	p.seen.replace(address, "<server>", dir, "<dir>", r, "<R>")
	return p
}

// play returns what each step printed, without what differs between two runs.
func (p *play) play(steps []step) []string {
	defer p.stopAll()
	var printed []string
	for _, s := range steps {
		before := time.Now()
		text, err := p.do(s)
		if err != nil {
			p.t.Errorf("%s: %s on %s: %v\n%s", s.where, s.text, p.address, err, text)
			return printed
		}
		if took := time.Since(before); took > 5*time.Second {
			p.t.Logf("%s: %s on %s took %s", s.where, s.text, p.address, took)
		}
		printed = append(printed, p.seen.in(text))
	}
	return printed
}

func (p *play) do(s step) (string, error) {
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
		return p.repeat(words[2:], func(out string) bool { return strings.Contains(out, words[1]) })
	case "until":
		args := []string{words[2], "info", "-f", "state", words[3]}
		return p.repeat(args, func(out string) bool { return strings.HasPrefix(out, words[1]+"\n") })
	}
	out, err := p.run(words)
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

// repeat runs cl until it has said what is waited for.
func (p *play) repeat(words []string, heard func(string) bool) (string, error) {
	deadline := time.Now().Add(patience)
	for {
		out, err := p.run(words)
		if err != nil || heard(out) || strings.Contains(out, "NotFoundError") || time.Now().After(deadline) {
			return out, err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// run runs cl, again if another cl was just writing the tokens of their home, which cl does in
// place (codalab/lib/codalab_manager.py: save_state).
func (p *play) run(words []string) (string, error) {
	for try := 1; ; try++ {
		out, err := p.runOnce(words)
		if try == 5 || !strings.HasPrefix(out, "Invalid JSON in ") {
			return out, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// runOnce returns its output, the lines of standard error, which begin with an
// exclamation mark, and its exit code if that is not zero.
func (p *play) runOnce(words []string) (string, error) {
	name, isUser := p.names[words[0]]
	if !isUser || len(words) < 2 {
		return "", fmt.Errorf("unknown step %q", words)
	}
	lock, isNew := p.homes.of(p.address + " " + name)
	switch words[1] {
	case "work", "w", "logout", "alias", "config":
		isNew = true
	}
	if isNew { // it writes into its home
		lock.Lock()
		defer lock.Unlock()
	} else {
		lock.RLock()
		defer lock.RUnlock()
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), commandLimit)
	defer cancel()
	args := append(append(p.cl[1:len(p.cl):len(p.cl)], p.address, name, p.passwords[words[0]]), words[1:]...)
	cmd := exec.CommandContext(ctx, p.cl[0], args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "CODALAB_SESSION="+p.r, "EDITOR="+filepath.Join(p.dir, "editor"), "COLUMNS=200")
	var stdout, stderr bytes.Buffer
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
	said := strings.FieldsFunc(stderr.String(), func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range said {
		if strings.HasPrefix(line, "Traceback ") { // of a cl that did not expect such an answer
			out += "! Traceback\n! " + said[len(said)-1] + "\n"
			break
		}
		if line = strings.TrimSpace(line); line != "" {
			out += "! " + line + "\n"
		}
	}
	if exit != nil {
		out += fmt.Sprintf("exit %d\n", exit.ExitCode())
	}
	return out, nil
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

// worker starts or ends a cl-worker.
func (p *play) worker(words []string) error {
	verb, id := words[0], words[1]
	if verb == "start" {
		args := append(p.client.worker[1:len(p.client.worker):len(p.client.worker)], p.address, p.names["ann"], p.passwords["ann"],
			"--id", id, "--work-dir", filepath.Join(p.dir, "work-"+id), "--network-prefix", "net-"+id)
		cmd := exec.CommandContext(p.t.Context(), p.client.worker[0], append(args, words[2:]...)...)
		log, err := os.OpenFile(filepath.Join(p.dir, "log-"+id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		p.workers[id] = cmd
		return errors.Join(cmd.Start(), log.Close())
	}
	cmd := p.workers[id]
	if cmd == nil {
		return errors.New("no such worker")
	}
	signals := map[string]syscall.Signal{"pause": syscall.SIGSTOP, "resume": syscall.SIGCONT, "stop": syscall.SIGTERM, "wait": 0}
	if err := cmd.Process.Signal(signals[verb]); err != nil {
		return fmt.Errorf("signal worker: %w", err)
	}
	if verb == "pause" || verb == "resume" {
		return nil
	}
	delete(p.workers, id)
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("end worker: %w", err)
	}
	return nil
}

// stopAll ends the workers, of which a script that failed has left some.
func (p *play) stopAll() {
	for id, cmd := range p.workers {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		if err := p.worker([]string{"stop", id}); err != nil {
			p.t.Errorf("worker %s: %v", id, err)
		}
	}
}

// split splits a line into words as a shell does, and expands the known variables in it.
func split(line string, variables map[string]string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for rest := line; rest != ""; {
		c := rune(rest[0])
		name := regexp.MustCompile(`^\$(\w+)`).FindStringSubmatch(rest)
		value, known := "", false
		if name != nil {
			value, known = variables[name[1]]
		}
		size := 1
		switch {
		case quote == 0 && c == ' ':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case known:
			word.WriteString(value)
			size, inWord = len(name[0]), true
		default:
			word.WriteByte(rest[0])
			inWord = true
		}
		rest = rest[size:]
	}
	if quote != 0 {
		return nil, errors.New("a quote does not end")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
