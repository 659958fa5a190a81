package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const (
	// cleanupLimit limits the removal of a bundle whose upload has failed, also after an interrupt.
	cleanupLimit = 10 * time.Second
	// unpackLimit limits the wait for an upload whose answer was lost, while the server reports that it
	// is not ready. A proxy may give up before the server has unpacked the contents.
	unpackLimit = 10 * time.Minute
	// absenceLimit ends that wait earlier if the server does not answer.
	absenceLimit = time.Minute
)

// send creates a bundle and sends its contents. If it fails, it has removed the bundle or printed a
// warning that the bundle may exist.
func (u *upload) send(ctx context.Context, at *workspace, p *payload, b client.NewBundle) (uuid string, err error) {
	progress := u.progress("Sent", p.size)
	progress.files = p.files
	defer progress.end()
	var body io.ReadCloser // a nil one is no body
	if p.open != nil {
		// Before a bundle is created, so that a local error leaves none behind.
		if body, err = p.open(ctx, progress); err != nil {
			return "", err
		}
		defer body.Close()
	}
	if uuid, err = u.create(ctx, at, b); err != nil {
		return "", err
	}
	o := client.UploadOptions{
		Filename: p.name, Unpack: p.unpack, Finalize: true, URL: p.url, Git: u.git, Azure: u.azure, Store: u.metadata.String("store"),
	}
	whole := true
	if body == nil {
		u.printOnTerminal("The server fetches %s (%s)", p.url, uuid)
		err = at.UploadContents(ctx, uuid, o, nil)
	} else {
		u.printOnTerminal("Uploading %s (%s) to %s", p.name, uuid, at.Address())
		stream := &toItsEnd{Reader: body}
		err = at.UploadContents(ctx, uuid, o, stream)
		whole = stream.reached.Load()
	}
	progress.end()
	if err != nil {
		err = u.resolveFailedUpload(ctx, at, uuid, whole, err)
	}
	return uuid, err
}

// toItsEnd is a stream that records whether it was read to its end.
type toItsEnd struct {
	io.Reader
	reached atomic.Bool
}

// Read reads on.
func (t *toItsEnd) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		t.reached.Store(true)
	}
	return n, err
}

// create creates a bundle. The call continues for cleanupLimit after an interrupt, so that its answer
// shows whether the bundle exists. If the answer is lost, create removes the bundle.
func (c *cli) create(ctx context.Context, at *workspace, b client.NewBundle) (uuid string, err error) {
	b.UUID = codalab.NewUUID()
	b.CheckRequests = b.Type == codalab.TypeRun && !b.WaitForUpload // a copy of a run needs no queue
	longer, cancel := outlive(ctx, cleanupLimit)
	defer cancel()
	made, err := at.CreateBundle(longer, b)
	if err == nil && ctx.Err() == nil {
		c.warnOnce(made.Warnings)
		c.noteReaders(ctx, at, made)
		return b.UUID, nil
	}
	if err == nil || transient(err) && !unconnected(err) {
		c.remove(ctx, at, b.UUID, "it is not known whether it was made")
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", explainSecrets(ctx, at, b.Metadata, err)
}

// warnOnce prints the warnings of a server, each once.
func (c *cli) warnOnce(warnings []string) {
	for _, warning := range warnings {
		if !slices.Contains(c.warned, warning) {
			c.warned = append(c.warned, warning)
			c.warn("cl: %s", termtext.OneLine(warning))
		}
	}
}

// outlive returns a context that ends when this time has passed since the end of ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { stop(); cancel() }
}

// transient reports whether the same call may succeed later, and may have succeeded now.
func transient(err error) bool {
	var call *codalab.Error
	return errors.As(err, &call) && call.Transient()
}

// unconnected reports whether a call has not reached a server.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// resolveFailedUpload handles the bundle of a failed upload, which may have succeeded while its answer was lost.
// whole reports that all contents were sent. settle returns nil if the bundle is ready.
func (u *upload) resolveFailedUpload(ctx context.Context, at *workspace, uuid string, whole bool, failure error) error {
	if transient(failure) && whole && ctx.Err() == nil {
		state, reason := u.outcome(ctx, at, uuid, passing(failure))
		switch {
		case state == codalab.StateReady:
			return nil
		case state == "" && ctx.Err() == nil && passing(failure):
			u.warn("It is not known whether bundle %[1]s has its contents. cl wait %[1]s shows it later, and cl rm %[1]s removes it.", uuid)
			return failure
		case state.Final() && reason != "":
			failure = refusef("%s", reason)
		}
	}
	if ctx.Err() != nil {
		failure = ctx.Err()
		u.warn("Interrupted: removing bundle %s. Another Ctrl-C leaves it there.", uuid)
	}
	u.cli.remove(ctx, at, uuid, "its upload has not succeeded")
	return failure
}

// outcome gets a bundle's state from the server; if wait is set, it waits for the end of the upload.
// The state is empty if the server does not answer.
func (u *upload) outcome(ctx context.Context, at *workspace, uuid string, wait bool) (state codalab.State, failure string) {
	begun := u.Now()
	answered := begun
	for asked := 1; ; asked++ {
		b, err := at.Bundle(ctx, uuid)
		switch {
		case err == nil && b.State.Final():
			return b.State, b.UploadFailure()
		case err == nil:
			answered = u.Now()
		case !transient(err):
			return "", ""
		}
		if !wait || u.Now().Sub(begun) > unpackLimit || u.Now().Sub(answered) > absenceLimit {
			return "", ""
		}
		if asked == 1 {
			u.warn("The answer of the server is lost: asking for the state of bundle %s.", uuid)
		}
		if backoff.Wait(ctx, asked, minPoll, 4*time.Second) != nil {
			return "", ""
		}
	}
}

// remove removes a new bundle, also after an interrupt, and prints the result.
func (c *cli) remove(ctx context.Context, at *workspace, uuid, because string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	var err error
	for {
		_, err = at.DeleteBundles(ctx, []string{uuid}, client.DeleteOptions{Force: true})
		if err == nil || !transient(err) || pause.For(ctx, time.Second) != nil {
			break
		}
	}
	gone := isNotFound(err)
	if codalab.IsStatus(err, http.StatusForbidden) { // CodaLab's own server says so of a bundle that is not there
		_, missing := at.Bundle(ctx, uuid)
		gone = isNotFound(missing)
	}
	switch {
	case gone: // it was never created, or the server has removed it
	case err != nil:
		c.warn("Bundle %[1]s remains without its contents, since it could not be removed: %[2]v. Remove it with: cl rm %[1]s", uuid, explain(err))
	default:
		c.warn("Bundle %s was removed again: %s.", uuid, because)
	}
}
