package batchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// task is a task of the job.
type task struct {
	id       string
	body     object // as it was added
	state    string
	created  time.Time
	changed  time.Time
	began    time.Time
	ended    time.Time
	node     *node
	exit     *int
	failure  object
	requeues int
	starts   int                      // the times that it was begun again
	files    map[string]*bytes.Buffer // nil if they are gone
	stop     context.CancelCauseFunc
	byUser   bool
}

// errNodeLost is the cause of the end of a task whose node is gone: it gets no signal but KILL.
var errNodeLost = errors.New("the node is lost")

// Run is a task that runs.
type Run struct {
	ID, Node, CommandLine, Image, RunOptions string
	// Env has the variables of the task.
	Env            []string
	Stdout, Stderr io.Writer
}

// schedule starts waiting tasks on free slots. The caller holds mu.
func (s *Service) schedule() {
	if s.jobState != "active" {
		return
	}
	for _, t := range s.all {
		if t.state != "active" {
			continue
		}
		i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.slots > 0 && (n.state == "idle" || n.state == "running") })
		if i < 0 {
			return
		}
		t.node, t.state, t.began, t.changed = s.nodes[i], "running", s.Now(), s.Now()
		t.node.slots--
		t.node.state = "running"
		t.files = map[string]*bytes.Buffer{"stdout.txt": {}, "stderr.txt": {}}
		if s.Execute != nil {
			s.execute(t)
		}
	}
}

// execute runs a task in a goroutine. The caller holds mu.
func (s *Service) execute(t *task) {
	ctx, stop := context.WithCancelCause(s.ctx)
	t.stop = stop
	starts := t.starts
	r := Run{ID: t.id, Node: t.node.id, Stdout: &output{s: s, t: t, to: t.files["stdout.txt"]}, Stderr: &output{s: s, t: t, to: t.files["stderr.txt"]}}
	r.CommandLine, _ = t.body["commandLine"].(string)
	if c, ok := t.body["containerSettings"].(object); ok {
		r.Image, _ = c["imageName"].(string)
		r.RunOptions, _ = c["containerRunOptions"].(string)
	}
	variables, _ := t.body["environmentSettings"].([]any)
	for _, v := range variables {
		if pair, ok := v.(object); ok {
			r.Env = append(r.Env, fmt.Sprintf("%s=%s", pair["name"], pair["value"]))
		}
	}
	s.tasks.Go(func() {
		defer stop(nil)
		exit := s.Execute(ctx, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.state == "running" && t.starts == starts {
			s.complete(t, exit)
		}
	})
}

// output is a file of a task that runs.
type output struct {
	s  *Service
	t  *task
	to *bytes.Buffer
}

// Write appends to the file.
func (o *output) Write(p []byte) (int, error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return o.to.Write(p)
}

// complete ends a task. The caller holds mu.
func (s *Service) complete(t *task, exit int) {
	switch {
	case t.byUser:
		t.failure = object{"category": "usererror", "code": "TaskEnded", "message": "Task Was Ended by User Request"}
	case exit != 0:
		t.failure = object{"category": "usererror", "code": "FailureExitCode", "message": "The task exited with an exit code representing a failure"}
	}
	if t.node != nil {
		if !t.byUser {
			t.exit = &exit
		}
		t.node.slots++
		if t.node.state == "running" {
			t.node.state = "idle"
		}
	}
	if failure := s.upload(t); failure != nil && t.failure == nil {
		t.failure = failure
	}
	t.state, t.ended, t.changed = "completed", s.Now(), s.Now()
	s.schedule()
}

// task returns a task, which the test must have. The caller holds mu.
func (s *Service) task(id string) *task {
	for _, t := range s.all {
		if t.id == id {
			return t
		}
	}
	s.tb.Errorf("the service has no task %s", id)
	return &task{files: map[string]*bytes.Buffer{"stdout.txt": {}, "stderr.txt": {}}}
}

// Print appends to stdout.txt or stderr.txt of a running task.
func (s *Service) Print(id, file, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.task(id).files[file].WriteString(text) // a buffer takes all
}

// Finish ends a running task with an exit code.
func (s *Service) Finish(id string, exit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete(s.task(id), exit)
}

// Fail ends a task that the node cannot start, for instance because its image cannot be pulled.
func (s *Service) Fail(id, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.task(id)
	t.failure = object{"category": "usererror", "code": code, "message": message}
	t.byUser = false
	t.state, t.ended, t.changed = "completed", s.Now(), s.Now()
	s.schedule()
}

// Preempt takes the node of a running task away. Batch begins the task again, on another node.
func (s *Service) Preempt(id string) { s.loseNode(id, "preempted", 0) }

// Requeue takes the node of a running task away, as a person who shrinks the pool.
func (s *Service) Requeue(id string) { s.loseNode(id, "leavingpool", 1) }

// loseNode begins a task again. Batch counts only the times that a person was the cause (BatchTaskExecutionInfo:
// requeueCount).
func (s *Service) loseNode(id, state string, requeues int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.task(id)
	t.node.state = state
	t.starts++
	t.state, t.node, t.files, t.began, t.changed = "active", nil, nil, time.Time{}, s.Now()
	t.requeues += requeues
	if t.stop != nil {
		t.stop(errNodeLost)
	}
	s.schedule()
}

// RemoveNodes removes the nodes, with the files of ended tasks.
func (s *Service) RemoveNodes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = nil
	for _, t := range s.all {
		if t.state == "completed" {
			t.files = nil
		}
	}
}

// Vanish removes a task, as if its job had been deleted and made again.
func (s *Service) Vanish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.task(id); t.stop != nil {
		t.stop(errNodeLost)
	}
	s.all = slices.DeleteFunc(s.all, func(t *task) bool { return t.id == id })
}

// Age moves the times of a task into the past.
func (s *Service) Age(id string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.task(id)
	for _, at := range []*time.Time{&t.created, &t.changed, &t.began, &t.ended} {
		if !at.IsZero() {
			*at = at.Add(-by)
		}
	}
}

// Task returns a task as it was added, and its state; nil if there is none.
func (s *Service) Task(id string) (body map[string]any, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if t.id == id {
			return t.body, t.state
		}
	}
	return nil, ""
}

// IDs returns the ids of the tasks in this state; of all if it is empty.
func (s *Service) IDs(state string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, t := range s.all {
		if state == "" || t.state == state {
			ids = append(ids, t.id)
		}
	}
	return ids
}
