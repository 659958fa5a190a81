package linkonce

import (
	"fmt"
	"strings"
)

// check runs a site again and again until it has seen every order of its processes'
// calls, and every outcome of each call within the budget, or until one of them breaks a
// promise. If two executions reach the same state, check continues only one: a process is
// a function of the answers that it got, so equal answers and an equal disk have an equal
// future.
type check struct {
	site  site
	stack []frame
	seen  map[string]bool
	runs  int
}

// frame is a state of the current execution, with the choices that were tried in it.
type frame struct {
	state   string
	choices []choice
	tried   int
}

// mostCalls is more than any execution needs whose faults have an end.
const mostCalls = 150

// run returns a description of a broken promise, and the calls that led there; or
// nothing.
func (c *check) run() (broken string, trace []string) {
	c.seen = map[string]bool{}
	for {
		c.runs++
		if broken := c.once(); broken != "" {
			return broken, c.trace()
		}
		for { // go back to where something is left to be tried
			if len(c.stack) == 0 {
				return "", nil
			}
			top := &c.stack[len(c.stack)-1]
			if top.tried++; top.tried < len(top.choices) {
				break
			}
			c.seen[top.state] = true
			c.stack = c.stack[:len(c.stack)-1]
		}
	}
}

// once repeats the execution up to the last state, and goes on to its end or
// to a state that is known.
func (c *check) once() (broken string) {
	w := c.site.open()
	defer w.close()
	for _, f := range c.stack {
		w.do(f.choices[f.tried])
	}
	for {
		if w.broken != "" {
			return w.broken
		}
		state := w.state()
		if c.seen[state] {
			return ""
		}
		choices := w.choices()
		if len(choices) == 0 {
			return w.end()
		}
		if len(c.stack) == mostCalls {
			return "it has no end"
		}
		c.stack = append(c.stack, frame{state: state, choices: choices})
		w.do(choices[0])
	}
}

// trace describes the calls of the current execution.
func (c *check) trace() []string {
	w := c.site.open()
	defer w.close()
	var said []string
	for _, f := range c.stack {
		said = append(said, w.describe(f.choices[f.tried]))
		w.do(f.choices[f.tried])
	}
	return said
}

// site is a number of processes that settle one path, and a budget of faults.
type site struct {
	settle  protocol
	names   []string // each begins with a letter of its own
	faults  int
	crashes int // of the file server, among the faults
	// mortals crash, as one of the faults. Without it none does.
	mortals bool
	// times is the number of times that a process settles the path, until it knows the
	// record.
	times int
}

func (s site) open() *world {
	w := &world{site: s, temporaries: map[string]temporary{}}
	for _, name := range s.names {
		w.processes = append(w.processes, startProcess(w, name))
	}
	return w
}

type temporary struct {
	record string
	of     *process
}

// world is the file server and its processes.
type world struct {
	site
	// standing is the record at the path. It lasts once the directory was
	// flushed.
	standing string
	lasts    bool
	// late are the records whose links are still to arrive.
	late []string
	// temporaries are the existing ones; written counts all that were ever made.
	temporaries map[string]temporary
	written     int

	processes []*process
	// believed is the record that some process has acted upon.
	believed string
	owner    *process
	broken   string
}

func (w *world) close() {
	for _, p := range w.processes {
		p.cancel()
	}
}

// choice is one possible next step: an outcome of a process's call, or a fault of the
// file server.
type choice struct {
	process int
	outcome outcome
}

const server = -1

// choices lists the possible next steps. A call that no other process can see (on a
// temporary of the process's own, or on the clock) is done at once, because its order
// makes no difference.
func (w *world) choices() []choice {
	var all []choice
	for i, p := range w.processes {
		if !p.calling {
			continue
		}
		unseen := p.call.kind == "write" || p.call.kind == "remove" || p.call.kind == "pause"
		if unseen {
			all = all[:0]
		}
		for _, o := range w.outcomes(p.call) {
			all = append(all, choice{process: i, outcome: o})
		}
		if unseen {
			return all
		}
	}
	if len(w.late) > 0 {
		all = append(all, choice{process: server, outcome: arrives})
	}
	if w.standing != "" && !w.lasts && w.crashes > 0 && w.faults > 0 {
		all = append(all, choice{process: server, outcome: crashed})
	}
	return all
}

func (w *world) do(c choice) {
	before := w.standing
	if c.process == server {
		w.befall(c.outcome)
	} else {
		p := w.processes[c.process]
		if c.outcome.fault() {
			w.faults--
		}
		if c.outcome == crashed {
			p.crash()
		} else {
			p.resume(w.answer(p, p.call, c.outcome))
		}
	}
	switch {
	case w.broken != "":
	case w.believed != "" && w.standing != w.believed:
		w.broken = fmt.Sprintf("%s was believed, and %q stands", w.believed, w.standing)
	case before != "" && w.standing != before && c.process != server:
		w.broken = fmt.Sprintf("%s stood, and %q does now", before, w.standing)
	}
}

// befall applies a fault of the file server.
func (w *world) befall(o outcome) {
	if o == crashed {
		w.faults--
		w.crashes--
		w.standing = ""
		return
	}
	if w.standing == "" {
		w.standing, w.lasts = w.late[0], false
	}
	w.late = w.late[1:]
}

// believe records that a process has learnt the standing record.
func (w *world) believe(p *process, standing string, own bool) {
	switch {
	case w.broken != "":
	case standing == "":
		w.broken = p.name + " believes that nothing stands"
	case standing != w.standing:
		w.broken = fmt.Sprintf("%s believes %q, and %q stands", p.name, standing, w.standing)
	case own != (standing == p.record):
		w.broken = fmt.Sprintf("%s, whose record is %s, takes %s for its own: %v", p.name, p.record, standing, own)
	case w.believed != "" && standing != w.believed:
		w.broken = fmt.Sprintf("%s believes %s, and another process believed %s", p.name, standing, w.believed)
	case own && w.owner != nil:
		w.broken = fmt.Sprintf("%s and %s are both the owner", p.name, w.owner.name)
	}
	w.believed = standing
	if own {
		w.owner = p
	}
}

// leave records the end of a process, whether it has learnt the standing record or gives
// up.
func (w *world) leave(p *process, early bool) {
	for name, t := range w.temporaries {
		if t.of == p {
			w.broken = name + " was left behind"
		}
	}
	if early {
		w.broken = p.name + " gave up before its time"
	}
}

// end is the promise that an execution which is over has broken, or empty.
func (w *world) end() string {
	for _, p := range w.processes {
		if p.crashed || p.gaveUp {
			return ""
		}
	}
	if w.owner == nil {
		return "all went well, and nobody is the owner"
	}
	return ""
}

// state is all on which the rest of an execution depends.
func (w *world) state() string {
	key := make([]byte, 0, 128)
	for _, p := range w.processes {
		key = append(key, p.answers...)
		key = append(key, '/')
	}
	key = append(key, byte(w.faults), byte(w.crashes))
	key = append(key, w.standing...)
	if w.lasts {
		key = append(key, '!')
	}
	key = append(append(key, '='), w.believed...)
	for _, l := range w.late {
		key = append(append(key, '<'), l...)
	}
	return string(key)
}

func (w *world) describe(c choice) string {
	if c.process == server {
		return "file server: " + c.outcome.String()
	}
	p := w.processes[c.process]
	return strings.TrimSpace(p.name + " " + p.call.kind + " " + p.call.argument + ": " + c.outcome.String())
}
