package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"sync"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
)

// Conn is a connection to a port in a container. One goroutine may read while another writes.
type Conn struct {
	io.Reader
	io.WriteCloser // of one direction

	end func() error
}

// CloseWrite tells the other end that no more data will come.
func (c *Conn) CloseWrite() error { return c.WriteCloser.Close() }

// Close ends the connection, and the program that carries it, if there is one.
func (c *Conn) Close() error { return c.end() }

// Dial connects to a port on this host's own localhost, for a container that shares its network. It
// uses the first of the addresses that answers.
func Dial(ctx context.Context, addresses []netip.Addr, port int) (*Conn, error) {
	conn, err := dialPort(ctx, addresses, port)
	if err != nil {
		return nil, err
	}
	return &Conn{Reader: conn, WriteCloser: half{conn, conn.CloseWrite}, end: conn.Close}, nil
}

// half writes to a connection, and closes only that direction.
type half struct {
	io.Writer

	close func() error
}

// Close closes the direction.
func (h half) Close() error { return h.close() }

// Start starts a program that runs [Main] in the end, and returns when Main has connected. ctx
// limits only this time. If the program fails, its last message is the error.
func Start(ctx context.Context, args, env []string) (*Conn, error) {
	cmd := initproc.NewCmd(args, env)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	greeting := make([]byte, len(connected))
	_, err = io.ReadFull(out, greeting)
	if stopped := stop(); err == nil && stopped && string(greeting) == connected {
		return &Conn{Reader: out, WriteCloser: in, end: sync.OnceValue(func() error { return end(cmd, in) })}, nil
	}
	_ = end(cmd, in)
	switch message := initproc.LastMessage(stderr.String()); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case message != "":
		return nil, errors.New(message)
	}
	return nil, fmt.Errorf("%s ended without a message", args[0])
}

// end ends the program. The end of its input ends the program in the container, which an engine's
// client leaves behind when it is killed.
func end(cmd *exec.Cmd, in io.Closer) error {
	_ = in.Close() // it may be closed already
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return nil
}
