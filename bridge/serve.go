package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"syscall"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/spool"
)

// answerMessage answers a message that asks for a bundle's files, from where they are, until
// they are removed. No row is decided for it.
//
// A message names the UUID alone, and may mean another bundle of that UUID than the row's. So the bridge
// asks the server for the bundle before it opens a file: the row's bundle was there when the message was
// sent if it is there now.
func (b *Bridge) answerMessage(ctx context.Context, q plan.Queue, m codalab.Message) {
	var err error
	switch m.Type {
	case codalab.MessageRead:
		err = b.answerRead(ctx, q, m)
	case codalab.MessageWrite:
		err = b.answerWrite(ctx, m)
	case codalab.MessageNetcat:
		err = b.answerNetcat(ctx, q, m)
	default: // answer passes these only
	}
	if err != nil && ctx.Err() == nil {
		b.Log.WarnContext(ctx, "a message of the server's was not answered", slog.String("kind", string(m.Type)), errorAttr(err))
	}
}

// answerRead answers as CodaLab's own worker does (codalab/worker/worker.py: checkin,
// read_run_missing; codalab/worker/reader.py).
func (b *Bridge) answerRead(ctx context.Context, q plan.Queue, m codalab.Message) error {
	reply := codalab.ReadReply{ErrorCode: http.StatusInternalServerError, ErrorMessage: "Bundle no longer running"}
	var stream io.ReadCloser
	r, ok := b.knownRow(ctx, m.UUID)
	switch {
	case !ok || m.ReadArgs == nil:
	case r.Begun == nil && r.Phase != plan.Done:
		// The server may believe that an earlier attempt still runs. The sentence is its own
		// (codalab/lib/download_manager.py: _get_target_info_within_bundle).
		reply = codalab.ReadReply{ErrorCode: http.StatusNotFound, ErrorMessage: fmt.Sprintf("Bundle %s hasn't started running yet, files not available", m.UUID)}
	case r.Begun != nil && r.Run != nil:
		if _, err := b.standing(ctx, r); err != nil {
			return errors.Join(err, b.Service.Reply(ctx, b.Identity(q.Name), m.SocketID, reply))
		}
		root, err := b.Collector.Open(*r.Run, b.Policy.Layout.RunDir(r.Bundle, r.OnDisk))
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

// answerWrite writes a file into a running bundle for cl write. The server has already told its
// user that all is well, so a failure goes into the bundle's history.
func (b *Bridge) answerWrite(ctx context.Context, m codalab.Message) error {
	r, ok := b.view.row(m.UUID)
	if !ok {
		return fmt.Errorf("write %q into bundle %s: there is no such run here", m.Subpath, m.UUID)
	}
	err := b.writeInto(ctx, r, m)
	if err == nil {
		return nil
	}
	b.inbox.put(m.UUID, func(n *plan.News) { n.AddRemark(fmt.Sprintf("a write to %q was lost: %v", m.Subpath, err)) })
	return fmt.Errorf("write %q into bundle %s: %w", m.Subpath, m.UUID, err)
}

// plainName is the form of a name that may be written into a running bundle
// (codalab/rest/schemas.py: BundleActionSchema, validate_sub_path).
var plainName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// writeInto creates or overwrites a file. It does not overwrite a dependency
// (codalab/worker/worker.py: write).
func (b *Bridge) writeInto(ctx context.Context, r plan.Row, m codalab.Message) error {
	began := r.Begun != nil
	switch {
	case !plainName.MatchString(m.Subpath):
		return errors.New("that is not a file name")
	case r.Run != nil && slices.Contains(childPaths(*r.Run), m.Subpath):
		return errors.New("that is a dependency")
	case began && (r.Phase == plan.Running || r.Phase == plan.Stopping):
	case began:
		return errors.New("the run had ended")
	default:
		return errors.New("the run had not begun")
	}
	if b.Policy.Queues[r.Queue].WorkDir == spool.WorkDirLocal {
		return errors.New("its working directory is on its node's own disk")
	}
	if _, err := b.standing(ctx, r); err != nil {
		return err
	}
	root, err := os.OpenRoot(b.Policy.Layout.RunDir(r.Bundle, r.OnDisk))
	if err != nil {
		return fmt.Errorf("open working directory: %w", err)
	}
	err = writeFile(root, m.Subpath, m.String)
	return errors.Join(err, root.Close())
}

// writeFile writes a regular file. A command may have put a pipe in its place, which would
// block an open without O_NONBLOCK.
func writeFile(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("that is not a regular file")
	default:
		err = f.Truncate(0)
		if err == nil {
			_, err = f.WriteString(text)
		}
	}
	return errors.Join(err, f.Close())
}
