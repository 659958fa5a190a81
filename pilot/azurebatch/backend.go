package azurebatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// Backend runs pilots in tasks of one job of Azure Batch. The exported fields are set before the first use.
type Backend struct {
	Client *Client
	// Job is the job's id, Mark the manager's mark in the ids of tasks. It has at most 20 letters, digits and hyphens: an
	// id has at most 64 characters.
	Job, Mark string
	Shape     Shape
	// Worker is the command line of the worker.
	Worker pilot.Worker
	// Logger gets messages about the job's pool; nil means no log.
	Logger *slog.Logger
	Now    func() time.Time
	// Storage are azcore's settings for requests to the log container.
	Storage policy.ClientOptions
	// Every is the interval at which a followed log is read; 0 means two seconds.
	Every time.Duration

	listed bool                   // all tasks have been listed once, ended ones too
	live   map[string]bool        // tasks that had not ended at the last look
	ended  map[string]pilot.Pilot // those that have, until they are deleted
	pool   poolNotes
	warned time.Time // when the end of the SAS was last logged
}

var (
	_ pilot.Backend     = (*Backend)(nil)
	_ pilot.TokenNeeder = (*Backend)(nil)
)

// prefix begins the ids of tasks (azure_batch_worker_manager.py: start_worker_job).
const prefix = "cl_worker_"

func (b *Backend) prefix() string { return prefix + b.Mark + "_" }

// NewName returns the name of a new pilot and its task.
func (b *Backend) NewName() string { return b.prefix() + pilot.NewID() }

// IsPilot reports whether a task of this id is a pilot of this manager.
func (b *Backend) IsPilot(id string) bool {
	digits, ok := strings.CutPrefix(id, b.prefix())
	return ok && pilot.IsID(digits) // the mark of another manager may begin with ours
}

func (b *Backend) prepare() {
	if b.live == nil {
		b.live, b.ended = map[string]bool{}, map[string]pilot.Pilot{}
	}
}

// errNoPassword is the refusal of a start on a server that has no worker tokens.
var errNoPassword = fmt.Errorf("%w, and a task of Azure Batch has no place for a password: "+
	"write your name and password into a file on each node, in two lines, and name it with --worker-password-file", pilot.ErrNoLogin)

// TokenLife is that of all clouds.
func (b *Backend) TokenLife() time.Duration { return pilot.CloudTokenLife }

// NeedsToken fails without a password file.
func (b *Backend) NeedsToken() error {
	if b.Shape.PasswordFile == "" {
		return errNoPassword
	}
	return nil
}

// Start adds a pilot's task. The service refuses a second task of the name, so the client may repeat the request.
func (b *Backend) Start(ctx context.Context, name, token string) (pilot.Pilot, error) {
	b.prepare()
	if err := b.checkGPUs(ctx); err != nil {
		return pilot.Pilot{}, err
	}
	b.warnOfSAS(ctx)
	t, err := b.task(name, token)
	if err == nil {
		err = b.add(ctx, t)
	}
	if err != nil {
		return pilot.Pilot{}, err
	}
	b.live[name] = true
	return pilot.Pilot{Name: name, Phase: pilot.Pending, Job: name, State: taskActive, Since: b.Now()}, nil
}

// warnOfSAS logs once a day that the signature of the log container ends soon, or has ended: logs would be lost without a word.
func (b *Backend) warnOfSAS(ctx context.Context) {
	if b.Shape.LogContainer == "" || b.Logger == nil || b.Now().Sub(b.warned) < 24*time.Hour {
		return
	}
	c, err := OpenLogContainer(b.Shape.LogContainer, b.Storage)
	if err != nil || c.Expires().IsZero() || c.Expires().Sub(b.Now()) > keep {
		return
	}
	b.warned = b.Now()
	about := []slog.Attr{slog.String("container", c.Name()), slog.Time("at", c.Expires())}
	if c.Expires().Before(b.Now()) {
		b.Logger.LogAttrs(ctx, slog.LevelWarn, "the signature of the log container has ended, and the logs of new workers go with their nodes: make a new one, and start the manager with it", about...)
		return
	}
	b.Logger.LogAttrs(ctx, slog.LevelWarn, "the signature of the log container ends soon: make a new one, and start the manager with it", about...)
}

// task returns the task of a pilot with this token. Without a token the worker reads the nodes' password file.
func (b *Backend) task(name, token string) (Task, error) {
	var login []string
	if token == "" {
		if err := b.NeedsToken(); err != nil {
			return Task{}, err
		}
		login = []string{"--password-file", b.Shape.PasswordFile}
	}
	// In a container the worker sees the memory of the whole node.
	words := append(b.Worker.Command(name, login...), "--max-memory", fmt.Sprintf("%dm", b.Shape.MemoryMB))
	return b.Shape.Task(name, words, token)
}

// add adds a task. If it is not certain whether the service has added it, add looks for it.
func (b *Backend) add(ctx context.Context, t Task) error {
	err := b.Client.AddTask(ctx, b.Job, t)
	var failed *Error
	switch {
	case errors.Is(err, ErrTaskExists):
		return nil
	case !errors.As(err, &failed) || !failed.Uncertain():
		return err
	}
	if _, found := b.Client.TaskInfo(ctx, b.Job, t.ID); found == nil {
		return nil
	}
	return err
}

// Preview returns the request by which Start adds the task of a pilot, without secrets. With a password file it is the
// one for a server without worker tokens.
func (b *Backend) Preview(name string) (string, error) {
	token := "…"
	if b.Shape.PasswordFile != "" {
		token = ""
	}
	t, err := b.task(name, token)
	if err != nil {
		return "", err
	}
	address, err := b.Client.address(call{path: []string{"jobs", b.Job, "tasks"}})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "POST %s\n\n", address)
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(t.Redacted())
	return text.String(), err
}

// Stop terminates a pilot's task.
func (b *Backend) Stop(ctx context.Context, p pilot.Pilot) error {
	err := b.Client.Terminate(ctx, b.Job, p.Name)
	if errors.Is(err, ErrCompleted) || errors.Is(err, ErrTaskNotFound) {
		return nil
	}
	return err
}

// mostDeleted is the number of tasks that one Tidy deletes.
const mostDeleted = 20

// Tidy deletes tasks that ended before the time for which their files stay: the
// service keeps ended tasks until their job is deleted, and lists of a job's tasks would grow for ever.
func (b *Backend) Tidy(ctx context.Context, _ pilot.NewToken) error {
	deleted := 0
	for name, p := range b.ended {
		if p.Since.IsZero() || b.Now().Sub(p.Since) < keep || deleted == mostDeleted {
			continue
		}
		deleted++
		err := b.Client.DeleteTask(ctx, b.Job, name)
		if err != nil && !errors.Is(err, ErrTaskNotFound) {
			return err
		}
		delete(b.ended, name)
	}
	return nil
}
