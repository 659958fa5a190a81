package initproc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// Kept keeps an init for containers of one image, which a caller runs one after another: the start of an init, and of the program
// that mounts the image, take most of the time of a small container. The init is a keeper. Its zero value is usable, and one thread
// uses it, because the init ends with the thread that has started it. A container that the kept init fails to begin, for example
// because that has been killed, gets an init of its own.
type Kept struct {
	// Images, if not nil, mounts the images, also for others.
	Images *Images

	want    keptFor
	refused keptFor // there can be no keeper for these
	doubted keptFor // the first container of a keeper for these has failed
	init    *runningInit
	dir     string       // the present init's
	image   *imageServer // has the present init's image; nil if the init has mounted it
	orders  int
	reports *json.Decoder
	ranged  bool
	number  uint64
	// containers counts those of the present init.
	containers int

	// sif is the configuration of the last SIF, in this state; nil before the first.
	sif      *SIFConfig
	sifState fileState
	// findIDs returns the subordinate ids, once they were looked for.
	findIDs func() (*subids.Map, error)
}

// readSIF reads the configuration of an open SIF, unless that is the last one; k may be nil.
func (k *Kept) readSIF(f *os.File) (*SIFConfig, error) {
	if k == nil {
		return readSIF(f)
	}
	state, err := stateOf(f)
	if err != nil {
		return nil, err
	}
	if k.sif == nil || k.sifState != state {
		if k.sif, err = readSIF(f); err != nil {
			k.sif = nil
			return nil, err
		}
		k.sifState = state
	}
	return k.sif, nil
}

// FindIDs is subids.Find, once for all containers; k may be nil.
func (k *Kept) FindIDs() (*subids.Map, error) {
	if k == nil {
		return subids.Find()
	}
	if k.findIDs == nil {
		k.findIDs = sync.OnceValues(subids.Find)
	}
	return k.findIDs()
}

// keptFor has the properties that the containers of one keeper have in common.
type keptFor struct {
	program      string
	sif          string
	id           FileID
	maxProcesses int64
	killedFirst  bool
	ids          bool
	network      container.Network
}

// Base describes the part of an init that a Kept keeps for the next one.
type Base struct {
	Kept *Kept
	// Root has the image, and the container's network.
	Root RootSpec
	// Dir is a directory like Spec.PrivateDir, which outlives the container.
	Dir string
}

// run is Init.Run by the kept init.
func (k *Kept) run(ctx context.Context, i Init) (container.Exit, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	base := i.Base
	i.Base = nil
	want := keptFor{i.Program, base.Root.SIF, base.Root.SIFID, i.Spec.MaxProcesses, i.KilledFirst, i.IDs != nil, base.Root.Network}
	if want == k.refused {
		return i.runAnew(ctx)
	}
	if k.init == nil || k.want != want {
		k.Close()
		if err := k.start(ctx, i, base); err != nil { // an init of its own has the reason, or the remedy
			if ctx.Err() == nil {
				k.refused = want
			}
			k.Close()
			return i.runAnew(ctx)
		}
		k.want, k.containers = want, 0
	}
	details, err := json.Marshal(i.Details)
	if err != nil {
		return container.Exit{}, fmt.Errorf("encode its order: %w", err)
	}
	i.Spec.Details, i.Spec.Ranged = details, k.ranged
	k.number++
	k.containers++
	if err := k.send(i); err != nil { // it has ended since
		k.Close()
		return i.runAnew(ctx)
	}
	exit, err := k.wait(ctx, i)
	if err == nil {
		k.doubted = keptFor{}
		exit.Note = joinNotes(i.note, exit.Note)
		return exit, nil
	}
	k.Close()
	k.leaveRoot(i.Spec.PrivateDir)
	if i.Spec.Ranged && exit.Code == CodeOneID {
		i.useOneID(err)
		return i.runAnew(ctx)
	}
	if _, ofHost := errors.AsType[*container.HostError](err); !ofHost || ctx.Err() != nil {
		return exit, err
	}
	if k.containers == 1 { // there may be something that a keeper cannot do here, such as to unpack the image
		if k.doubted == want {
			k.refused = want
		}
		k.doubted = want
	}
	return i.runAnew(ctx)
}

// leaveRoot moves the root of an init that has ended during a container to the container's directory, as the init itself would have done, so
// that the caller measures and removes it.
func (k *Kept) leaveRoot(private string) {
	root := filepath.Join(k.dir, writtenDir)
	if _, err := os.Lstat(root); err != nil {
		return
	}
	if dir, err := makePrivateDir(private, containerPrefix); err == nil {
		_ = os.Rename(root, filepath.Join(dir, writtenDir)) // otherwise it goes with the place's directory
	}
}

// runAnew runs a container, whose command has not begun, by an init of its own.
func (i Init) runAnew(ctx context.Context) (container.Exit, error) {
	dir, err := makePrivateDir(i.Spec.PrivateDir, containerPrefix)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	i.Spec.PrivateDir, i.Spec.Ranged = dir, false
	return i.Run(ctx)
}

// start starts a keeper, and waits until it has mounted the image.
func (k *Kept) start(ctx context.Context, i Init, base *Base) error {
	dir, err := makePrivateDir(base.Dir, "kept-")
	if err != nil {
		return err
	}
	k.dir = dir
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(ends[1]) }() // the init has its own
	keeper := Init{
		Program: i.Program, IDs: i.IDs, KilledFirst: i.KilledFirst, Details: base.Root, orders: ends[1],
		Spec: Spec{Work: keeperWork, PrivateDir: dir, KillGrace: i.Spec.KillGrace, MaxProcesses: i.Spec.MaxProcesses},
	}
	if k.Images != nil {
		if k.image, keeper.image, keeper.Spec.Image, err = k.Images.open(ctx, i, base); err == nil { // otherwise the init mounts the image
			defer keeper.image.close() // the init has its own
		}
	}
	if k.init, err = keeper.start(); err != nil {
		return errors.Join(err, unix.Close(ends[0]))
	}
	k.orders, k.ranged = ends[0], keeper.Spec.Ranged
	k.reports = json.NewDecoder(k.init.report)
	var first report
	k.init.heed(ctx, keeper.Spec.KillGrace, k.init.stop, func() {
		if err = json.NewEncoder(k.init.control).Encode(keeper.Spec); err == nil {
			err = k.reports.Decode(&first)
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("start its init: %w", err)
	case keeper.note != "": // this host refuses the subordinate ids
		return errors.New(keeper.note)
	case !first.Began:
		return first.Err()
	case !first.Shared:
		if k.image != nil {
			k.Images.refuse()
		}
		k.Images.release(k.image)
		k.image = nil
	}
	return nil
}

// send sends the order of a container, with its files.
func (k *Kept) send(i Init) error {
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	text := os.NewFile(uintptr(fd), "order")
	defer func() { _ = text.Close() }() // the init has its own
	if err := json.NewEncoder(text).Encode(i.Spec); err != nil {
		return err
	}
	if _, err := text.Seek(0, 0); err != nil {
		return err
	}
	null, err := openNull()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(null) }()
	return k.message(fd, int(fdOr(i.Stdout, null)), int(fdOr(i.Stderr, null)))
}

// message sends the number of the present order, with files or, to stop its container, without.
func (k *Kept) message(files ...int) error {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	number := binary.NativeEndian.AppendUint64(nil, k.number)
	return os.NewSyscallError("sendmsg", unix.Sendmsg(k.orders, number, rights, nil, unix.MSG_NOSIGNAL))
}

func orderNumber(text []byte) uint64 { return binary.NativeEndian.Uint64(text) }

// wait waits for the end of the container.
func (k *Kept) wait(ctx context.Context, i Init) (container.Exit, error) {
	var report report
	var began bool
	var readErr error
	stop := func() { _ = k.message() } // it fails if the init has ended
	served, end := context.WithCancelCause(ctx)
	defer end(nil)
	if server := k.image; server != nil {
		background.Detach(func() {
			select {
			case <-server.lost:
				end(errImageLost)
			case <-served.Done():
			}
		})
	}
	k.init.heed(served, i.Spec.KillGrace, stop, func() {
		report, began, readErr = i.readReports(k.reports, k.init.child)
	})
	if readErr == nil {
		report.Note = joinNotes(report.Note, i.awaitFiles(k.reports))
	}
	exit, err := i.outcome(ctx, report, began, readErr)
	exit.Usage = report.Usage
	if err == nil && errors.Is(context.Cause(served), errImageLost) {
		err = k.image.reason()
	}
	return exit, err
}

// Close ends the init.
func (k *Kept) Close() {
	if k.init != nil {
		_ = unix.Close(k.orders)
		_ = k.init.control.Close() // it ends now
		_ = k.init.report.Close()
		_, _ = k.init.child.wait()
		k.init = nil
	}
	k.Images.release(k.image)
	k.image = nil
}
