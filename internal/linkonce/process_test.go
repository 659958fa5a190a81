package linkonce

import (
	"context"
	"io/fs"
	"iter"
	"strconv"
	"strings"
	"syscall"
)

// outcome is the outcome of a call.
type outcome byte

const (
	done    outcome = iota // and the answer says so
	lost                   // done, and the answer is an error
	twice                  // a link that was done, asked for again: the answer is EEXIST
	missing                // a link that was done, asked for again: the answer is ENOENT
	undone                 // not done, and the answer is an error
	late                   // the answer is an error, and the call arrives later
	swept                  // a link whose temporary another process has removed
	stale                  // a read that does not see the file
	torn                   // a read that sees it empty
	ended                  // a pause in which the context ends
	crashed                // the process, or the file server, before the call
	arrives                // a late call
)

func (o outcome) fault() bool { return o != done && o != arrives }

func (o outcome) String() string {
	return [...]string{
		"done", "done, answered by an error", "done, answered EEXIST", "done, answered ENOENT", "not done", "on its way, answered by an error",
		"the temporary is gone", "not there, it seems", "empty", "the context ends", "crashes", "a late link arrives",
	}[o]
}

// call is one call of a process to the file server.
type call struct {
	kind, argument string
}

type answer struct {
	data string
	err  error
	code byte // tells the answer from all others to the same call
}

// outcomes lists the possible outcomes of a call. It omits faults that no process could
// distinguish from a listed one.
func (w *world) outcomes(c call) []outcome {
	if w.faults == 0 {
		return []outcome{done}
	}
	there := w.standing != ""
	switch {
	case c.kind == "pause":
		return []outcome{done, ended}
	case c.kind == "write", c.kind == "remove":
		return []outcome{done, undone}
	case c.kind == "flush" && there && !w.lasts:
		return w.mortal(done, lost, undone)
	case c.kind == "read" && there:
		return w.mortal(done, undone, stale, torn)
	case c.kind == "rename":
		return w.mortal(done, lost, undone)
	case c.kind == "link" && !there:
		return w.mortal(done, lost, twice, missing, undone, late, swept)
	case c.kind == "link":
		return w.mortal(done, undone, late, swept)
	}
	return w.mortal(done, undone)
}

// mortal adds that the process crashes. For the others that is no more than a
// process that is slow for ever, and every order of calls has slow ones.
func (w *world) mortal(all ...outcome) []outcome {
	if w.mortals {
		all = append(all, crashed)
	}
	return all
}

// answer performs a call, or not, and returns the process's answer.
func (w *world) answer(p *process, c call, o outcome) answer {
	switch o {
	case undone:
		if c.kind == "remove" { // nobody can do better
			delete(w.temporaries, c.argument)
		}
		return answer{err: syscall.EIO, code: 'e'}
	case swept:
		delete(w.temporaries, c.argument)
		return answer{err: fs.ErrNotExist, code: 'n'}
	case stale:
		return answer{err: fs.ErrNotExist, code: 'n'}
	case late:
		w.late = append(w.late, w.temporaries[c.argument].record)
		return answer{err: syscall.EIO, code: 'e'}
	case torn:
		return answer{code: 't'}
	case ended:
		return answer{err: context.Canceled, code: 'c'}
	case done, lost, twice, missing, crashed, arrives:
	}
	a := w.serve(p, c)
	switch o {
	case lost:
		return answer{err: syscall.EIO, code: 'e'}
	case twice:
		return answer{err: fs.ErrExist, code: 'x'}
	case missing:
		return answer{err: fs.ErrNotExist, code: 'n'}
	case done, undone, late, swept, stale, torn, ended, crashed, arrives:
	}
	return a
}

// serve does a call.
func (w *world) serve(p *process, c call) answer {
	switch c.kind {
	case "write":
		w.written++
		name := "tmp" + strconv.Itoa(w.written)
		w.temporaries[name] = temporary{record: c.argument, of: p}
		return answer{data: name, code: 'd'}
	case "link", "rename":
		switch t, there := w.temporaries[c.argument]; {
		case !there:
			return answer{err: fs.ErrNotExist, code: 'n'}
		case w.standing != "" && c.kind == "link":
			return answer{err: fs.ErrExist, code: 'x'}
		default:
			w.standing, w.lasts = t.record, false
		}
	case "read":
		if w.standing == "" {
			return answer{err: fs.ErrNotExist, code: 'n'}
		}
		return answer{data: w.standing, code: w.standing[0]}
	case "flush":
		w.lasts = w.standing != ""
	case "remove":
		delete(w.temporaries, c.argument)
	}
	return answer{code: 'd'}
}

// protocol is a way to settle which record stands. The real one, and wrong
// ones, are run as coroutines that stop at each call.
type protocol func(ctx context.Context, d disk, record string) (standing string, own bool, err error)

// process is one process that settles the path.
type process struct {
	world        *world
	name, record string

	next    func() (call, bool)
	cancel  func()
	yield   func(call) bool
	stopped bool

	// calling is set while the process waits for the answer to call.
	calling bool
	call    call
	told    answer
	answers []byte

	temporary string // the last one that it wrote

	left int // how often it may still settle the path

	crashed, mayGiveUp, gaveUp bool
}

// startProcess runs a process up to its first call.
func startProcess(w *world, name string) *process {
	p := &process{world: w, name: name, record: name[:1], answers: make([]byte, 0, 32)}
	p.next, p.cancel = iter.Pull(p.run)
	p.call, p.calling = p.next()
	return p
}

// unwound is the panic value of a process that stops.
type unwound struct{}

func (p *process) run(yield func(call) bool) {
	p.yield = yield
	defer func() {
		if r := recover(); r != nil && r != any(unwound{}) {
			panic(r)
		}
	}()
	for p.left = p.world.times; p.left > 0; p.left-- {
		standing, own, err := p.world.settle(context.Background(), p.disk(), p.record)
		if err == nil {
			p.over('.')
			p.world.leave(p, false)
			p.world.believe(p, standing, own)
			return
		}
		p.over('?')
	}
	p.gaveUp = true
	p.over('!')
	p.world.leave(p, !p.mayGiveUp)
}

// over forgets the answers, on which nothing depends any more.
func (p *process) over(mark byte) {
	p.answers = append(p.answers[:0], mark, byte(p.left))
}

// ask stops the process until the file server answers.
func (p *process) ask(kind, argument string) answer {
	if p.stopped || !p.yield(call{kind: kind, argument: argument}) {
		p.stopped = true
		panic(unwound{})
	}
	return p.told
}

func (p *process) resume(a answer) {
	p.told = a
	p.answers = append(p.answers, a.code)
	p.mayGiveUp = p.mayGiveUp || p.call.kind == "pause" && a.err != nil
	if p.call.kind == "pause" && a.err == nil { // all that a try knows of earlier ones is a temporary
		p.over('-')
		if _, there := p.world.temporaries[p.temporary]; there {
			p.over('+')
		}
	}
	p.call, p.calling = p.next()
}

func (p *process) crash() {
	p.crashed, p.calling = true, false
	p.over('#')
}

// replaces is the prefix of a wrong protocol's link that replaces the standing record.
const replaces = "replacing "

// disk is the file server as a process sees it.
func (p *process) disk() disk {
	return disk{
		write: func(record []byte) (string, error) {
			a := p.ask("write", string(record))
			p.temporary = a.data
			return a.data, a.err
		},
		link: func(temporary string) error {
			if temporary, ok := strings.CutPrefix(temporary, replaces); ok {
				return p.ask("rename", temporary).err
			}
			return p.ask("link", temporary).err
		},
		read: func() ([]byte, error) {
			a := p.ask("read", "")
			return []byte(a.data), a.err
		},
		flush:  func() error { return p.ask("flush", "").err },
		remove: func(temporary string) error { return p.ask("remove", temporary).err },
		pause:  func(context.Context) error { return p.ask("pause", "").err },
	}
}
