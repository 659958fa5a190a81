package initproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// RootSpec describes the root that an init makes.
type RootSpec struct {
	SIF    string
	SIFID  FileID // of the file that SIF must mean
	Offset int64  // of the SIF's partition
	Others sifconfig.Object
	// Squashfuse is the program that mounts the SIF. If it cannot, Unpack has the reason.
	Squashfuse string
	Unpack     string
	Bubblewrap string
	Binds      []container.Bind
	Network    container.Network
	ShmBytes   int64
	// Forwarder is the program for a private network. If there is none, NoForwarder has the reason.
	Forwarder   string
	NoForwarder string
}

// SIFConfig is the configuration of a container's SIF, with the identity of the file from which it was
// read. The SIF is opened once, so that its configuration belongs to the file that is run.
type SIFConfig struct {
	sifconfig.Config

	id FileID
}

// FileID identifies a file while a process has it open.
type FileID struct{ Device, Inode uint64 }

// fileState changes with the content of a file.
type fileState struct {
	FileID

	size              int64
	modified, changed unix.Timespec
}

// WithSIF validates the container, calls prepare with its configuration to get an init, and runs that init.
// It opens the SIF unless the caller has. An error contains the SIF's path. A failure before the
// init is the fault of the host or of the request. kept, if not nil, remembers the configuration for the next container of the image.
func WithSIF(ctx context.Context, c container.Container, kept *Kept, prepare func(*SIFConfig) (Init, error)) (_ container.Exit, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("run container of %s: %w", c.SIF, err)
		}
	}()
	if ctx.Err() != nil {
		return container.Exit{}, ctx.Err()
	}
	f := c.OpenedSIF
	if f == nil {
		if f, err = openSIF(c.SIF); err != nil {
			return container.Exit{}, container.NotBegun(err)
		}
		defer func() { _ = f.Close() }() // it was only read
	}
	sif, err := kept.readSIF(f)
	if err == nil {
		err = c.Validate(sif.Architecture)
	}
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	init, err := prepare(sif)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	exit, err := init.Run(ctx)
	if err == nil && exit.Code != 0 && ctx.Err() == nil {
		err = checkThere(f)
	}
	return exit, err
}

// checkThere returns an error if the open SIF cannot be read any more, for example because
// a file server was restored from a copy. A command then fails at unreadable files, often with
// SIGBUS. NFS and FUSE ask their servers for AT_STATX_FORCE_SYNC (statx(2)).
func checkThere(f *os.File) error {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
	if err == nil || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 4.11, or a filter
		return nil
	}
	return fmt.Errorf("the image could be read no more while the command ran: %w", err)
}

// readSIF reads the configuration of an open SIF. An invalid SIF is the request's fault.
func readSIF(f *os.File) (*SIFConfig, error) {
	o := &SIFConfig{}
	var err error
	if o.id, err = idOf(f); err != nil {
		return nil, err
	}
	o.Config, err = sifconfig.ReadFile(f)
	if _, ok := errors.AsType[syscall.Errno](err); err != nil && !ok {
		return nil, &container.RequestError{Err: err}
	}
	return o, err
}

// RootSpec returns the root for a container of this SIF.
func (o *SIFConfig) RootSpec(c container.Container) RootSpec {
	s := RootSpec{SIF: c.SIF, SIFID: o.id, Offset: o.Offset, Others: o.Others, Binds: c.Binds, Network: c.Network, ShmBytes: c.ShmBytes}
	var err error
	if s.Squashfuse, err = FindSquashfuse(); err == nil {
		err = CheckFuse()
	}
	if err != nil {
		s.Unpack = err.Error()
	}
	if c.Network == container.PrivateNetwork {
		if s.Forwarder, err = FindForwarder(); err != nil {
			s.NoForwarder = err.Error()
		}
	}
	return s
}

// openSIF opens a SIF. It does not block on a pipe at that path.
func openSIF(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the SIF: %w", err)
	}
	return f, nil
}

func idOf(f *os.File) (FileID, error) {
	s, err := stateOf(f)
	return s.FileID, err
}

func stateOf(f *os.File) (fileState, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileState{}, fmt.Errorf("identify %s: %w", f.Name(), err)
	}
	return fileState{FileID{st.Dev, st.Ino}, st.Size, st.Mtim, st.Ctim}, nil
}

// SecureSIF mounts the SIF in the init's own mount namespace and sets SIF to that mount, so that
// nobody can replace the file afterwards. A plain init has no such namespace: it only checks the
// file, which Apptainer opens soon after.
func (r *Root) SecureSIF() error {
	f, err := openSIF(r.SIF)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the mount keeps it
	id, err := idOf(f)
	switch {
	case err != nil:
		return err
	case id != r.SIFID:
		return container.RequestErrorf("the file %s was replaced by another while the container began", r.SIF)
	case r.Process.Plain:
		return nil
	}
	r.SIF, err = r.secureFile(f, "sif")
	return err
}

// answerWait limits the time that IsMountLost waits for squashfuse to answer.
const answerWait = time.Second

// IsMountLost reports whether the squashfuse of the mounted SIF has ended. A command that finds
// its files missing may end before the init receives squashfuse's death.
func IsMountLost() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	_, err := background.Call(ctx, func() (st unix.Statfs_t, err error) {
		err = unix.Statfs(LowerDir, &st) // FUSE asks squashfuse
		return st, err
	})
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// AwaitLoss waits for squashfuse's death and returns an error that describes it.
func (r *Root) AwaitLoss() error {
	if r.squashfuse == 0 { // it is another init's
		return errImageLost
	}
	for d := range r.Process.Deaths {
		if err := r.Lost(d); err != nil {
			return err
		}
	}
	return errors.New("the end of squashfuse was missed")
}
