package engineimages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Engine is the client of Docker or Podman.
type Engine struct {
	// Program is the path of docker or podman.
	Program string
	// Options precede the verb of every call, such as "--host", "unix:///run/…".
	Options []string
	// Env is the whole environment of the program, which finds the engine, its logins and its own
	// files by it: PATH, HOME, DOCKER_HOST, DOCKER_CONFIG, XDG_RUNTIME_DIR and so on.
	Env []string
}

// callTimeout limits every call except a pull. A busy engine is slow.
const callTimeout = 2 * time.Minute

// storeImage is an image in an engine's store, with the fields of `image inspect`.
type storeImage struct {
	ID          string `json:"Id"`
	RepoTags    []string
	RepoDigests []string
	Size        int64 // unpacked, including shared layers

	brought bool // by a worker with the same file of records
}

// errNone means that the store does not have the image.
var errNone = errors.New("the engine does not have the image")

// Answers returns an error unless the engine answers this user.
func (e Engine) Answers(ctx context.Context) error {
	_, err := e.command("version", "--format", "{{.Server.Version}}").Output(ctx)
	if err != nil {
		return e.explain("", err)
	}
	return nil
}

// Address returns the address at which Docker's client finds the engine, such as
// unix:///var/run/docker.sock. Podman and clients before 19.03 do not report it.
func (e Engine) Address(ctx context.Context) (string, error) {
	address, err := e.call(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	return strings.TrimSpace(address), err
}

func (e Engine) name() string { return filepath.Base(e.Program) }

func (e Engine) command(args ...string) command.Command {
	return command.Command{Args: slices.Concat([]string{e.Program}, e.Options, args), Env: e.Env, Dir: "/"}
}

func (e Engine) call(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := e.command(args...).Output(ctx)
	if err != nil {
		return "", e.explain("", err)
	}
	return string(out), nil
}

func (e Engine) inspect(ctx context.Context, reference string) (storeImage, error) {
	text, err := e.call(ctx, "image", "inspect", reference)
	if err != nil {
		return storeImage{}, err
	}
	var found []storeImage
	if err := json.Unmarshal([]byte(text), &found); err != nil || len(found) != 1 {
		return storeImage{}, fmt.Errorf("%s image inspect: %d images: %w", e.name(), len(found), errors.Join(err, errNone))
	}
	found[0].ID = plainID(found[0].ID)
	return found[0], nil
}

// list returns the references of all images in the store, by their ids.
func (e Engine) list(ctx context.Context) (map[string][]string, error) {
	text, err := e.call(ctx, "image", "ls", "--no-trunc", "--digests", "--format", "{{.ID}} {{.Repository}} {{.Tag}} {{.Digest}}")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 4 {
			continue
		}
		id := plainID(words[0])
		all[id] = append(all[id], words[1]+":"+words[2], words[1]+"@"+words[3]) // "<none>" is not the reference of any image
	}
	return all, nil
}

// plainID returns an id in the form that all commands accept. Podman prints some ids without the
// digest's algorithm.
func plainID(id string) string {
	if strings.HasPrefix(id, "sha256:") {
		return id
	}
	return "sha256:" + id
}

// remove removes references from images without force. An image without a reference is gone.
func (e Engine) remove(ctx context.Context, references ...string) error {
	_, err := e.call(ctx, append([]string{"image", "rm"}, references...)...)
	return err
}

// pull pulls an image, without a time limit. It copies the engine's output to out.
func (e Engine) pull(ctx context.Context, w wanted, out io.Writer) error {
	c := e.command("pull", w.full)
	c.Stdout = out
	if err := c.Run(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return e.explainPull(ctx, w, err)
	}
	return nil
}

// explainPull is explain for a pull. It returns a *brokenOffError if the connection to the engine ended during
// the pull, and the engine answers again.
func (e Engine) explainPull(ctx context.Context, w wanted, err error) error {
	explained := e.explain(w.ref.String(), err)
	var failed *command.Error
	if !errors.As(err, &failed) || !failed.Started() || !isBrokenOff(lastLine(failed.Stderr)) || e.Answers(ctx) != nil {
		return explained
	}
	return &brokenOffError{explained}
}

// brokenOffError means that the engine broke off a pull. Some images crash it: Docker 20.10 panics if an image's
// configuration has null in its field config (moby image/store.go: Create), and says "unexpected EOF". It says
// the same when a registry breaks off.
type brokenOffError struct{ error }

func (e *brokenOffError) Unwrap() error { return e.error }

// isBrokenOff reports whether a client's message says that the connection to the engine ended. Messages of
// the engine itself about a registry contain more words.
func isBrokenOff(message string) bool {
	lower := strings.ToLower(message)
	return lower == "eof" || lower == "unexpected eof" || strings.HasPrefix(lower, "error during connect") || strings.HasPrefix(lower, "cannot connect to")
}

// explain returns the error of the engine's client about an image, or about another call, as a
// sentence for people.
func (e Engine) explain(reference string, err error) error {
	var failed *command.Error
	if !errors.As(err, &failed) {
		return err
	}
	message := lastLine(failed.Stderr)
	if !failed.Started() || message == "" {
		message = failed.Err.Error()
	}
	lower := strings.ToLower(message)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	what := ""
	if reference != "" {
		what = "image " + reference
	}
	switch {
	case !failed.Started() || has("cannot connect to", "is the docker daemon running", "error during connect", "permission denied while trying to connect", "unable to connect to podman"):
		return &transfer.Error{What: what, Err: fmt.Errorf("%s cannot be used: %s", e.name(), message), Retry: true, IsOutage: true}
	case has("no space left on device"):
		return &transfer.Error{What: what, Err: fmt.Errorf("%s has no room for it: %w", e.name(), syscall.ENOSPC), Retry: true, IsOutage: true}
	case has("no such image", "image not known"):
		return errNone
	case reference == "":
		return fmt.Errorf("%s: %s", e.name(), message)
	case has("toomanyrequests", "too many requests", " 429 "):
		return &transfer.Error{What: what, Err: fmt.Errorf("the registry has had too many requests: %s", message), Retry: true, IsOutage: true}
	case has("pull access denied", "unauthorized", "denied:", "authentication required", "no basic auth", "access forbidden"):
		return &transfer.Error{What: what, Err: fmt.Errorf("the registry denies access: the image is private and `%s login` has not been run for this worker, or it does not exist", e.name())}
	case has("manifest unknown", "name unknown", "name not known") || strings.HasSuffix(lower, "not found"):
		return &transfer.Error{What: what, Err: errors.New("not found in the registry")}
	case has("no matching manifest", "invalid reference format", "not supported"):
		return &transfer.Error{What: what, Err: errors.New(message)}
	case has("no such host", "timeout", "deadline exceeded", "connection re", "unreachable", "eof", "tls", "x509", "temporary failure", "status: 5", "server error", "bad gateway", "unavailable"):
		return &transfer.Error{What: what, Err: fmt.Errorf("the registry cannot be reached: %s", message), Retry: true, IsOutage: true}
	}
	return &transfer.Error{What: what, Err: fmt.Errorf("%s: %s", e.name(), message), Retry: true}
}

// lastLine returns the last line of a client's output, without its empty prefixes.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := strings.TrimPrefix(lines[len(lines)-1], "Error response from daemon: ")
	return termtext.OneLine(strings.TrimPrefix(line, "Error: "))
}
