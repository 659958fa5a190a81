package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"syscall"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/contents"
	"github.com/cl-slurm/cl-slurm/spool"
)

// serve answers a message that asks for a bundle's files, straight from where
// they lie, until they are removed. It is not a matter for the row.
func (b *Bridge) serve(ctx context.Context, q plan.Queue, m codalab.Message) {
	var err error
	switch m.Type { //nolint:exhaustive // deliver brings no others here
	case codalab.MessageRead:
		err = b.read(ctx, q, m)
	case codalab.MessageWrite:
		err = b.write(m)
	case codalab.MessageNetcat:
		err = b.Service.Reply(ctx, b.Identity(q.Name), m.SocketID, codalab.ReadReply{
			ErrorCode: http.StatusNotImplemented, ErrorMessage: "A bundle in a Slurm job cannot be connected to.",
		})
	}
	if err != nil && ctx.Err() == nil {
		b.Log.WarnContext(ctx, "a message of the server's was not served", slog.String("kind", string(m.Type)), errorAttr(err))
	}
}

func (b *Bridge) read(ctx context.Context, q plan.Queue, m codalab.Message) error {
	// codalab/worker/worker.py: read_run_missing
	reply := codalab.ReadReply{ErrorCode: http.StatusInternalServerError, ErrorMessage: "Bundle no longer running"}
	var stream io.ReadCloser
	if r, ok := b.view.row(m.UUID); ok && r.Begun != nil && r.Run != nil && m.ReadArgs != nil {
		root, err := b.Collector.Open(*r.Run, b.Policy.Layout.RunDir(r.Bundle, r.Attempt))
		if err == nil {
			defer func() { _ = root.Close() }() // only read
			target := codalab.Target{BundleUUID: m.UUID, Subpath: m.Path}
			reply, stream = contents.Answer(ctx, root, target, *m.ReadArgs, childPaths(*r.Run))
		}
	}
	if stream == nil {
		return b.Service.Reply(ctx, b.Identity(q.Name), m.SocketID, reply)
	}
	err := b.Service.ReplyData(ctx, b.Identity(q.Name), m.SocketID, stream)
	return errors.Join(err, stream.Close())
}

func childPaths(run codalab.RunBundle) []string {
	paths := make([]string, 0, len(run.Dependencies))
	for _, d := range run.Dependencies {
		paths = append(paths, d.ChildPath)
	}
	return paths
}

// plainName is what may be written into a running bundle
// (codalab/rest/bundle_actions.py: only plain names).
var plainName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

func (b *Bridge) write(m codalab.Message) error {
	r, ok := b.view.row(m.UUID)
	if !ok || r.Phase != plan.Running || !plainName.MatchString(m.Subpath) {
		return fmt.Errorf("write %q into bundle %s: %w", m.Subpath, m.UUID, fs.ErrInvalid)
	}
	if b.Policy.Queues[r.Queue].WorkDir == spool.WorkDirLocal {
		return fmt.Errorf("write %q into bundle %s: its working directory is on its node's own disk", m.Subpath, m.UUID)
	}
	root, err := os.OpenRoot(b.Policy.Layout.RunDir(r.Bundle, r.Attempt))
	if err != nil {
		return fmt.Errorf("write into bundle: %w", err)
	}
	err = writeFile(root, m.Subpath, m.String)
	return errors.Join(err, root.Close())
}

// writeFile writes a plain file. A command may have put a pipe in its place,
// which would hold whoever opens it.
func writeFile(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("write into bundle: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("write into bundle: %s is no plain file", name)
	default:
		err = f.Truncate(0)
		if err == nil {
			_, err = f.WriteString(text)
		}
	}
	return errors.Join(err, f.Close())
}
