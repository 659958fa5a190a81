package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Images has the containers of one process that run in the same image at the
// same time share one mount of it: one squashfuse, and one copy in memory of
// what was read. A mount begins with its first container and ends with its
// last. The zero value is usable; it must not be copied, and its methods may be
// called by several goroutines at once.
//
// What serves a shared mount is a child of this process: its processor time and
// memory are no container's. Containers of other processes have mounts of their
// own, since whoever ends a process, as Slurm does with a job's, would take the
// image from the others.
type Images struct {
	mu      sync.Mutex
	served  map[fileID]*servedImage
	refused bool // by this host, whose containers have mounts of their own
}

// servedImage is an image with a process that serves it.
type servedImage struct {
	users int // guarded by Images.mu

	conn *net.UnixConn
	turn chan struct{} // holds one while a request is made
	stop context.CancelFunc
	gone chan struct{} // closed when nothing of it is left
}

// lease is a container's share of an image.
type lease struct {
	mount    *os.File // for init to attach where it likes
	lifeline *os.File // ends when the image is served no more
	end      func()
}

// files are what init inherits.
func (l *lease) files() []*os.File {
	if l == nil {
		return nil
	}
	return []*os.File{l.mount, l.lifeline}
}

// close is called at the container's end.
func (l *lease) close() {
	if l == nil {
		return
	}
	_, _ = l.mount.Close(), l.lifeline.Close() // a failed close of these tells nothing
	l.end()
}

// lease returns a share of the image that a container is to have by its spec;
// nil where there is none to be had, and init has to mount the image itself.
func (m *Images) lease(ctx context.Context, init []string, spec initSpec) *lease {
	if m == nil || spec.Unpack != "" {
		return nil
	}
	s, err := m.join(ctx, init, spec)
	if err != nil {
		return nil
	}
	l := &lease{end: func() { m.leave(spec.Image, s) }}
	if l.mount, l.lifeline, err = s.request(ctx); err != nil {
		l.end()
		return nil
	}
	return l
}

// errRefused is the cause where a host shares no images.
var errRefused = errors.New("this host shares no images")

// join makes a container one of an image's users.
func (m *Images) join(ctx context.Context, init []string, spec initSpec) (*servedImage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused {
		return nil, errRefused
	}
	s := m.served[spec.Image]
	if s == nil {
		var err error
		if s, err = m.serve(ctx, init, spec); err != nil {
			return nil, err
		}
		if m.served == nil {
			m.served = map[fileID]*servedImage{}
		}
		m.served[spec.Image] = s
	}
	s.users++
	return s, nil
}

// leave ends the serving of an image with its last user, and waits until
// nothing is left of it.
func (m *Images) leave(id fileID, s *servedImage) {
	if last := m.unjoin(id, s); last {
		s.stop()
		<-s.gone
	}
}

func (m *Images) unjoin(id fileID, s *servedImage) (last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.users--; s.users == 0 {
		m.forget(id, s)
	}
	return s.users == 0
}

// forget has the next container in an image begin anew. The caller holds mu.
func (m *Images) forget(id fileID, s *servedImage) {
	if m.served[id] == s {
		delete(m.served, id)
	}
}

// serve starts what serves an image. The caller holds mu.
func (m *Images) serve(ctx context.Context, init []string, spec initSpec) (*servedImage, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it serves others, too
	s := &servedImage{conn: ours, turn: make(chan struct{}, 1), stop: stop, gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(s.gone)
		defer stop()
		defer func() { _ = ours.Close() }()
		// The kernel kills init when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		child, err := startInit(Container{}, init, namespaces(), theirs)
		started <- err
		if err != nil {
			return
		}
		// Whoever still runs hears of its failure by the lifeline.
		_, err = child.wait(ctx, initSpec{
			Serve: true, Scratch: serveDir, SIF: spec.SIF, Image: spec.Image, Offset: spec.Offset, Squashfuse: spec.Squashfuse,
		}, nil)
		var lack *HostError
		m.mu.Lock()
		defer m.mu.Unlock()
		m.refused = m.refused || errors.As(err, &lack)
		m.forget(spec.Image, s)
	}()
	return s, <-started
}

// request asks for a mount of the image and waits until it is served.
func (s *servedImage) request(ctx context.Context) (mount, lifeline *os.File, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("ask for a mount: %w", ctx.Err())
	}
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return nil, nil, fmt.Errorf("ask for a mount: %w", err)
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = s.conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-expired // so that it is not the next one's
		}
	}()
	if _, err := s.conn.Write([]byte{0}); err != nil {
		return nil, nil, fmt.Errorf("ask for a mount: %w", err)
	}
	rights := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := s.conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, nil, fmt.Errorf("receive a mount: %w", err)
	}
	files, err := filesOf(rights[:n])
	if err == nil && len(files) == 2 {
		return files[0], files[1], nil
	}
	for _, f := range files { // what did not fit among our descriptors was dropped
		_ = f.Close()
	}
	return nil, nil, errors.Join(errors.New("receive a mount: there was none"), err)
}

// socketPair makes a pair of sockets that keep the bounds of messages: one to
// speak through here, one for a child.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make sockets: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	conn, err := unixConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// unixConn makes a connection of a file, which it closes.
func unixConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	return c.(*net.UnixConn), nil //nolint:forcetypeassert // that is what it is of
}

// filesOf are the descriptors of a message.
func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("read a message: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "shared image"))
		}
	}
	return files, nil
}
