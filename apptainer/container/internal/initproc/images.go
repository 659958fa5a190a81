package initproc

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Images has images mounted for several Kepts, each image once while one of them uses it: so their containers share squashfuse, and the
// kernel's cache of the image's files. Its zero value is usable, and its methods may be called at the same time. Where a mount cannot
// be given to another user namespace, each Kept mounts the image itself.
type Images struct {
	mu     sync.Mutex
	served map[servedFor]*imageServer
	// refused is set if this host does not let mounts be shared.
	refused bool
}

// servedFor identifies a mount: its users have all of it in common.
type servedFor struct {
	program string
	sif     string
	id      FileID
	ids     bool
}

// imageServer is an init that has an image mounted for others (serveImage).
type imageServer struct {
	want servedFor
	// users counts those that have not released it; Images.mu is for this.
	users int
	// ready is closed when the init has begun, or failed, and ended when it has ended.
	ready, ended chan struct{}
	failed       error
	init         *runningInit

	mu sync.Mutex // of a question on socket, with its answer
	// socket has a question of one byte for each mount.
	socket int
	// lost is closed when the init ends, and last has its reason.
	lost chan struct{}
	last report
}

// sharedMount is the mount of an image server, which an init gets as imageFD.
type sharedMount struct {
	// OpenFiles is the limit of a program's open files.
	OpenFiles unix.Rlimit
}

// errNotShared is the reason of a host that does not let mounts be shared.
var errNotShared = errors.New("the image's mount cannot be shared here")

// errImageLost is the end of an image server.
var errImageLost = errors.New("squashfuse, which serves the image's files, has ended")

// imageFiles are the descriptors of an image's mount, which can be attached once, and of its SIF.
type imageFiles struct{ mount, sif int }

func (f imageFiles) close() { _, _ = unix.Close(f.mount), unix.Close(f.sif) }

// open returns the server of an image, which it starts if there is none, and files for one init. The caller closes these, and releases the
// server once no init has a mount of it. i is the init for which that is, and base has its image.
func (m *Images) open(ctx context.Context, i Init, base *Base) (s *imageServer, files imageFiles, shared *sharedMount, err error) {
	if s = m.use(i, base); s == nil {
		return nil, files, nil, errNotShared
	}
	select {
	case <-s.ready:
		if err = s.failed; err == nil {
			files, shared, err = s.ask()
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		if errors.Is(err, errNotShared) {
			m.refuse()
		}
		m.release(s)
		return nil, files, nil, err
	}
	return s, files, shared, nil
}

// refuse makes open fail from now on.
func (m *Images) refuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = true
}

// use returns the server of an image, which may not be ready. One that has ended is replaced; one that could not begin is not. It returns
// nil after refuse.
func (m *Images) use(i Init, base *Base) *imageServer {
	want := servedFor{i.Program, base.Root.SIF, base.Root.SIFID, i.IDs != nil}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused {
		return nil
	}
	s := m.served[want]
	if s == nil || isClosed(s.lost) {
		s = &imageServer{want: want, ready: make(chan struct{}), ended: make(chan struct{}), lost: make(chan struct{})}
		if m.served == nil {
			m.served = map[servedFor]*imageServer{}
		}
		m.served[want] = s
		background.Detach(func() { s.run(i, base) }) // release waits for it, unless it hangs at the start
	}
	s.users++
	return s
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// release ends a server that nobody uses any more; s may be nil.
func (m *Images) release(s *imageServer) {
	if s == nil {
		return
	}
	m.mu.Lock()
	s.users--
	last := s.users == 0
	begun := !isClosed(s.ready) || s.failed == nil // failed is written before ready is closed
	if last && begun && m.served[s.want] == s {
		delete(m.served, s.want)
	}
	m.mu.Unlock()
	if !last {
		return
	}
	select {
	case <-s.ready:
		s.close()
		<-s.ended
	default: // it reads a file that hangs
		background.Detach(func() { <-s.ready; s.close() })
	}
}

// run starts the init, and waits for its end. The kernel ends it with the thread that has started it.
func (s *imageServer) run(i Init, base *Base) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	reports, err := s.start(i, base)
	if err != nil {
		s.failed = fmt.Errorf("mount the image for several containers: %w", err)
		s.close()
	}
	close(s.ready)
	if s.init == nil {
		return
	}
	if err == nil {
		_ = reports.Decode(&s.last) // it comes with the end
		close(s.lost)
	}
	_, _ = s.init.child.wait()
	_ = s.init.report.Close()
}

func (s *imageServer) start(i Init, base *Base) (*json.Decoder, error) {
	dir, err := makePrivateDir(base.Dir, "image-")
	if err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(ends[1]) }() // the init has its own
	root := base.Root
	root.Others, root.Network = sifconfig.Object{}, container.NoNetwork
	server := Init{
		Program: i.Program, IDs: i.IDs, Details: root, orders: ends[1],
		Spec: Spec{Work: imageWork, PrivateDir: dir, KillGrace: i.Spec.KillGrace},
	}
	if s.init, err = server.start(); err != nil {
		return nil, errors.Join(err, unix.Close(ends[0]))
	}
	s.socket = ends[0]
	if server.note != "" { // this host refuses the subordinate ids
		return nil, errors.New(server.note)
	}
	reports := json.NewDecoder(s.init.report)
	var first report
	if err = json.NewEncoder(s.init.control).Encode(server.Spec); err == nil {
		err = reports.Decode(&first)
	}
	if err == nil && !first.Began {
		err = first.Err()
	}
	return reports, err
}

// reason returns the reason why the server is lost.
func (s *imageServer) reason() error {
	if err := s.last.Err(); err != nil {
		return err
	}
	return errImageLost
}

// close ends the init. It may be called again.
func (s *imageServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.init != nil && s.socket >= 0 {
		_, _ = s.init.control.Close(), unix.Close(s.socket)
		s.socket = -1
	}
}

// ask asks the init for a mount.
func (s *imageServer) ask() (files imageFiles, shared *sharedMount, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := unix.Sendmsg(s.socket, []byte{0}, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		return files, nil, os.NewSyscallError("sendmsg", err)
	}
	text, rights := make([]byte, 16), make([]byte, unix.CmsgSpace(2*4))
	n, nRights, _, _, err := unix.Recvmsg(s.socket, text, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != len(text) {
		return files, nil, fmt.Errorf("receive the image's mount: %d bytes: %w", n, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nRights])
	if err != nil || len(messages) == 0 {
		return files, nil, errors.Join(err, errNotShared)
	}
	received, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(received) != 2 {
		return files, nil, fmt.Errorf("receive the image's mount: %d files: %w", len(received), cmp.Or[error](err, unix.EPROTO))
	}
	limit := unix.Rlimit{Cur: binary.NativeEndian.Uint64(text), Max: binary.NativeEndian.Uint64(text[8:])}
	return imageFiles{received[0], received[1]}, &sharedMount{limit}, nil
}
