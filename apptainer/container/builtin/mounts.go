package builtin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// SharedMounts lets containers of one process that use the same SIF at the same time share one mount
// of it, with one squashfuse and one cache in memory. A mount begins with its first container and
// ends with its last. The zero value is usable. It must not be copied. Several goroutines may use it at
// the same time.
//
// The squashfuse of a shared mount is a child of this process: its processor time and memory belong
// to no container. Containers of other processes have their own mounts. If they shared one, the end
// of one job would take the mount away from the others.
type SharedMounts struct {
	mu      sync.Mutex
	servers map[initproc.FileID]*mountServer
	refused bool // set if this host cannot share mounts
}

// mountServer is an init that mounts a SIF and gives mounts of it to containers.
type mountServer struct {
	users int // guarded by SharedMounts.mu

	conn  *net.UnixConn
	turn  chan struct{} // holds one entry during a request
	stop  context.CancelFunc
	ended <-chan struct{} // closed when it has ended completely
}

// share is a container's share of a mount.
type share struct {
	files []*os.File // for the init: a mount to attach, and a lifeline that ends with the server
	leave func()     // to call at the container's end
}

// join returns a share of the mount of a container's SIF, or nil if the init must mount the SIF
// itself.
func (m *SharedMounts) join(ctx context.Context, helper string, root initproc.RootSpec) *share {
	if m == nil || root.Unpack != "" {
		return nil
	}
	s, err := m.addUser(ctx, helper, root)
	if err != nil {
		return nil
	}
	leave := func() { m.removeUser(root.SIFID, s) }
	files, err := s.request(ctx)
	if err != nil {
		leave()
		return nil
	}
	return &share{files: files, leave: leave}
}

// errRefused is the cause if a host cannot share mounts.
var errRefused = errors.New("this host cannot share images")

// addUser makes a container a user of its SIF's server. It starts the server if there is none.
func (m *SharedMounts) addUser(ctx context.Context, helper string, root initproc.RootSpec) (*mountServer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused {
		return nil, errRefused
	}
	s := m.servers[root.SIFID]
	if s == nil {
		var err error
		if s, err = m.startServer(ctx, helper, root); err != nil {
			return nil, err
		}
		if m.servers == nil {
			m.servers = map[initproc.FileID]*mountServer{}
		}
		m.servers[root.SIFID] = s
	}
	s.users++
	return s, nil
}

// removeUser ends the server with its last user, and waits until it has ended completely.
func (m *SharedMounts) removeUser(id initproc.FileID, s *mountServer) {
	m.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		m.forget(id, s)
	}
	m.mu.Unlock()
	if last {
		s.stop()
		<-s.ended
	}
}

// forget makes the SIF's next container start a new server. The caller holds mu.
func (m *SharedMounts) forget(id initproc.FileID, s *mountServer) {
	if m.servers[id] == s {
		delete(m.servers, id)
	}
}

// startServer starts a SIF's server in the background. If the server fails later, requests to it
// fail. The caller holds mu.
func (m *SharedMounts) startServer(ctx context.Context, helper string, root initproc.RootSpec) (*mountServer, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // other containers use it, too
	s := &mountServer{conn: ours, turn: make(chan struct{}, 1), stop: stop}
	s.ended = background.Go(func() { // returns after stop
		defer stop()
		// The lifeline tells the users of a failure.
		_, err := initproc.Init{
			Program: helper, Details: root, Inherit: []*os.File{theirs},
			Spec: initproc.Spec{Work: serveWork, Scratch: serveDir, KillGrace: container.Container{}.KillGraceOrDefault()},
		}.Run(ctx)
		_ = ours.Close()
		var refusal *container.HostError
		m.mu.Lock()
		defer m.mu.Unlock()
		m.refused = m.refused || errors.As(err, &refusal) && !refusal.AnyRuntime
		m.forget(root.SIFID, s)
	})
	return s, nil
}

// request asks for a mount of the SIF, and waits until it is served. It returns the mount and the
// lifeline.
func (s *mountServer) request(ctx context.Context) ([]*os.File, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("ask for a mount: %w", ctx.Err())
	}
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("ask for a mount: %w", err)
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = s.conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-expired // so that the next request does not get this deadline
		}
	}()
	if _, err := s.conn.Write([]byte{0}); err != nil {
		return nil, fmt.Errorf("ask for a mount: %w", err)
	}
	rights := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := s.conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, fmt.Errorf("receive a mount: %w", err)
	}
	files, err := filesOf(rights[:n])
	if err == nil && len(files) == 2 {
		return files, nil
	}
	for _, f := range files { // the kernel drops files if this process has too many
		_ = f.Close()
	}
	return nil, errors.Join(errors.New("receive a mount: there was none"), err)
}

// socketPair makes a pair of sockets that preserve message boundaries: one for this process, one
// for a child.
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

// unixConn makes a connection of a file, and closes the file.
func unixConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	return c.(*net.UnixConn), nil //nolint:forcetypeassert // the file is a Unix socket
}

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
