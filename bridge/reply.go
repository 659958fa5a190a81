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

// replier replies to the server's messages about files and ports of bundles. It is safe for concurrent use.
type replier struct {
	inForce   *inForce
	workerID  func(queue string) string
	service   BundleService
	collector Collector
	spool     Spool
	ports     Ports // nil for none
	ledger    LedgerReader
	view      *view
	inbox     *inbox
	log       *slog.Logger
}

// reply replies to a message that asks for a bundle's files, from where they are, until
// they are removed. No row is decided for it.
//
// A message names the UUID alone, and may mean another bundle of that UUID than the row's. So the bridge
// asks the server for the bundle before it opens a file: the row's bundle was there when the message was
// sent if it is there now.
func (a *replier) reply(ctx context.Context, q plan.Queue, m codalab.Message) {
	var err error
	switch m.Type {
	case codalab.MessageRead:
		err = a.replyToRead(ctx, q, m)
	case codalab.MessageWrite:
		err = a.applyWrite(ctx, m)
	case codalab.MessageNetcat:
		err = a.replyToNetcat(ctx, q, m)
	default: // startReply passes these only
	}
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the bridge could not reply to a message of the server", slog.String("type", string(m.Type)), errorAttr(err))
	}
}

// replyToRead replies as CodaLab's own worker does (codalab/worker/worker.py: checkin,
// read_run_missing; codalab/worker/reader.py).
func (a *replier) replyToRead(ctx context.Context, q plan.Queue, m codalab.Message) error {
	reply := codalab.ReadReply{ErrorCode: http.StatusInternalServerError, ErrorMessage: "Bundle no longer running"}
	var stream io.ReadCloser
	r, ok := a.knownRow(ctx, m.UUID)
	switch {
	case !ok || m.ReadArgs == nil:
	case !r.HasFiles() && r.Phase != plan.Done:
		// The server may believe that an earlier attempt still runs. The sentence is its own
		// (codalab/lib/download_manager.py: _get_target_info_within_bundle).
		reply = codalab.ReadReply{ErrorCode: http.StatusNotFound, ErrorMessage: fmt.Sprintf("Bundle %s hasn't started running yet, files not available", m.UUID)}
	case r.HasFiles() && r.Run != nil:
		if _, err := standing(ctx, a.service, r); err != nil {
			return errors.Join(err, a.service.Reply(ctx, a.workerID(q.Name), m.SocketID, reply))
		}
		root, err := a.collector.Open(*r.Run, a.inForce.now().Layout.RunDir(r.Bundle, r.FilesIn()))
		if err == nil {
			defer func() { _ = root.Close() }() // only read
			target := codalab.Target{BundleUUID: m.UUID, Subpath: m.Path}
			reply, stream = contents.Reply(ctx, root, target, *m.ReadArgs, childPaths(*r.Run))
		}
	}
	if stream == nil {
		return a.service.Reply(ctx, a.workerID(q.Name), m.SocketID, reply)
	}
	err := a.service.ReplyData(ctx, a.workerID(q.Name), m.SocketID, stream)
	return errors.Join(err, stream.Close())
}

func childPaths(run codalab.RunBundle) []string {
	paths := make([]string, 0, len(run.Dependencies))
	for _, d := range run.Dependencies {
		paths = append(paths, d.ChildPath)
	}
	return paths
}

// applyWrite writes a file into a running bundle for cl write. The server has already told its
// user that all is well, so a failure goes into the bundle's history.
func (a *replier) applyWrite(ctx context.Context, m codalab.Message) error {
	r, ok := a.view.row(m.UUID)
	if !ok {
		return fmt.Errorf("write %q into bundle %s: there is no such run here", m.Subpath, m.UUID)
	}
	err := a.writeInto(ctx, r, m)
	if err == nil {
		return nil
	}
	a.inbox.put(m.UUID, func(n *plan.News) { n.AddRemark(fmt.Sprintf("a write to %q was lost: %v", m.Subpath, err)) })
	return fmt.Errorf("write %q into bundle %s: %w", m.Subpath, m.UUID, err)
}

// plainName is the form of a name that may be written into a running bundle
// (codalab/rest/schemas.py: BundleActionSchema, validate_sub_path).
var plainName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// writeInto creates or overwrites a file. It does not overwrite a dependency
// (codalab/worker/worker.py: write).
func (a *replier) writeInto(ctx context.Context, r plan.Row, m codalab.Message) error {
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
	if a.inForce.queue(r.Queue).WorkingDirDisk == spool.WorkingDirLocal {
		return errors.New("its working directory is on its node's own disk")
	}
	if _, err := standing(ctx, a.service, r); err != nil {
		return err
	}
	root, err := os.OpenRoot(a.inForce.now().Layout.RunDir(r.Bundle, r.OnDisk))
	if err != nil {
		return fmt.Errorf("open the run directory: %w", err)
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

// standing asks the server for a row's bundle. If the server has another one of its UUID, the row's
// is gone. Its owner may have given it to somebody else (cl chown).
func standing(ctx context.Context, service BundleService, r plan.Row) (codalab.Standing, error) {
	shown, err := service.Standing(ctx, r.Bundle)
	asked := r.Run.Identity()
	asked.OwnerID = ""
	if err == nil && !shown.Identity.Same(asked) {
		err = &codalab.Error{Method: "GET", Path: "/bundles/" + r.Bundle, Status: http.StatusNotFound, Message: "the bundle was deleted, and another one has its UUID"}
	}
	if err != nil {
		return codalab.Standing{}, err
	}
	return shown, nil
}

// knownRow returns a bundle's row, from the ledger if it rests.
func (a *replier) knownRow(ctx context.Context, bundle string) (plan.Row, bool) {
	if r, ok := a.view.row(bundle); ok {
		return r, true
	}
	if !a.view.rests(bundle) {
		return plan.Row{}, false
	}
	r, err := a.ledger.Row(ctx, bundle)
	return r, err == nil // the row may have been forgotten meanwhile
}
