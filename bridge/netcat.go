package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Ports reaches the ports of containers on the bridge's own host.
type Ports interface {
	// Dial connects to a port on localhost inside a container that runs. ctx bounds only the dialing.
	Dial(ctx context.Context, at spool.Container, port int) (io.ReadWriteCloser, error)
}

const (
	// dialWithin bounds the dialing, and talkWithin the whole conversation: the server gives up after a
	// minute and a half without an answer.
	dialWithin = 20 * time.Second
	talkWithin = 10 * time.Minute
)

// unconnectable replies to netcat, and netcurl, which arrives as netcat, where the bundle runs on another
// host. Its status is below 500: CodaLab's server reports higher ones to its user as an unexpected internal
// error (codalab/common.py: http_error_to_exception; codalab/server/rest_server.py: ErrorAdapter).
var unconnectable = codalab.ReadReply{ //nolint:gochecknoglobals // a constant
	ErrorCode:    http.StatusBadRequest,
	ErrorMessage: "This bundle runs in a Slurm job on a compute node, which takes no connections: netcat and netcurl do not reach it. Write results to files, and read them with cl cat.",
}

// replyToNetcat sends a message to a port of a running bundle's container, and passes on what comes back
// until the other end closes the connection (codalab/worker/worker.py: netcat).
func (a *replier) replyToNetcat(ctx context.Context, q plan.Queue, m codalab.Message) error {
	if a.ports == nil {
		return a.service.Reply(ctx, a.workerID(q.Name), m.SocketID, unconnectable)
	}
	ctx, cancel := context.WithTimeout(ctx, talkWithin)
	defer cancel()
	conn, err := a.dial(ctx, m)
	if err != nil {
		reply := codalab.ReadReply{ErrorCode: http.StatusBadRequest, ErrorMessage: codalab.Sentence(err.Error())}
		return a.service.Reply(ctx, a.workerID(q.Name), m.SocketID, reply)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a read that nothing comes for
	defer stop()
	_, err = io.WriteString(conn, m.Message)
	if err == nil {
		err = a.service.ReplyData(ctx, a.workerID(q.Name), m.SocketID, conn)
	}
	return errors.Join(err, conn.Close())
}

// dial connects to the port that a message names.
func (a *replier) dial(ctx context.Context, m codalab.Message) (io.ReadWriteCloser, error) {
	r, ok := a.view.row(m.UUID)
	if !ok || r.Phase != plan.Running || r.Begun == nil {
		return nil, errors.New("the bundle does not run")
	}
	if _, err := standing(ctx, a.service, r); err != nil {
		return nil, err
	}
	records, err := a.spool.ReadRecords(r.Bundle, r.OnDisk) // those of the row may be a second old
	switch {
	case err != nil:
		return nil, err
	case records.Status == nil || records.Status.Container == spool.Container{}:
		return nil, errors.New("the bundle's command has not begun yet")
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := a.ports.Dial(ctx, records.Status.Container, m.Port)
	if err != nil {
		return nil, fmt.Errorf("port %d of the bundle: %s", m.Port, strings.TrimSpace(err.Error()))
	}
	return conn, nil
}
