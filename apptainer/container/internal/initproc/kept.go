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
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// Kept keeps an init for containers of one image, which a caller runs one after another: the start of an init, and of the program
// that mounts the image, take most of the time of a small container. The init is a keeper. Its zero value is usable, and one thread
// uses it, because the init ends with the thread that has started it. A container that the kept init fails to begin, for example
// because that has been killed, gets an init of its own.
type Kept struct {
	want    keptFor
	refused keptFor // there can be no keeper for these
	init    *runningInit
	orders  int
	reports *json.Decoder
	ranged  bool
	number  uint64
	// containers counts those of the present init.
	containers int
}

// keptFor is what the containers of one keeper have in common.
type keptFor struct {
	program      string
	sif          string
	id           FileID
	maxProcesses int64
	killedFirst  bool
	ids          bool
}

// Base describes the part of an init that a Kept keeps for the next one.
type Base struct {
	Kept *Kept
	// Root has the image.
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
	want := keptFor{i.Program, base.Root.SIF, base.Root.SIFID, i.Spec.MaxProcesses, i.KilledFirst, i.IDs != nil}
	if want == k.refused {
		return i.Run(ctx)
	}
	if k.init == nil || k.want != want {
		k.Close()
		if err := k.start(ctx, i, base); err != nil { // i.Run has the reason, or the remedy
			if ctx.Err() == nil {
				k.refused = want
			}
			k.Close()
			return i.Run(ctx)
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
		i.Spec.Ranged = false
		return i.Run(ctx)
	}
	exit, err := k.wait(ctx, i)
	if err == nil {
		exit.Note = joinNotes(i.note, exit.Note)
		return exit, nil
	}
	k.Close()
	if i.Spec.Ranged && exit.Code == CodeOneID {
		i.useOneID(err)
		return i.Run(ctx)
	}
	if _, ofHost := errors.AsType[*container.HostError](err); !ofHost || ctx.Err() != nil {
		return exit, err
	}
	if k.containers == 1 { // there is something that a keeper cannot do here, such as to unpack the image
		k.refused = want
	}
	return i.runAnew(ctx)
}

// runAnew runs a container, whose command has not begun, by an init of its own.
func (i Init) runAnew(ctx context.Context) (container.Exit, error) {
	dir, err := os.MkdirTemp(filepath.Dir(i.Spec.PrivateDir), "container-")
	if err != nil {
		return container.Exit{}, container.NotBegun(fmt.Errorf("make its private directory: %w", err))
	}
	i.Spec.PrivateDir, i.Spec.Ranged = dir, false
	return i.Run(ctx)
}

// start starts a keeper, and waits until it has mounted the image.
func (k *Kept) start(ctx context.Context, i Init, base *Base) error {
	dir, err := os.MkdirTemp(base.Dir, "kept-")
	if err != nil {
		return fmt.Errorf("make its private directory: %w", err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(ends[1]) }() // the init has its own
	keeper := Init{
		Program: i.Program, IDs: i.IDs, KilledFirst: i.KilledFirst, Details: base.Root, orders: ends[1],
		Spec: Spec{Work: keeperWork, PrivateDir: dir, KillGrace: i.Spec.KillGrace, MaxProcesses: i.Spec.MaxProcesses},
	}
	if k.init, err = keeper.start(); err != nil {
		return errors.Join(err, unix.Close(ends[0]))
	}
	k.orders, k.ranged = ends[0], keeper.Spec.Ranged
	done := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() { k.init.stopWith(ctx, done) })
	err = json.NewEncoder(k.init.control).Encode(keeper.Spec)
	k.reports = json.NewDecoder(k.init.report)
	var first report
	if err == nil {
		err = k.reports.Decode(&first)
	}
	close(done)
	stopping.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("start its init: %w", err)
	case keeper.note != "": // this host refuses the subordinate ids
		return errors.New(keeper.note)
	case !first.Began:
		return first.Err()
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
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: os.DevNull, Err: err}
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
	done := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() { k.stopWith(ctx, i.Spec.KillGrace, done) })
	report, began, readErr := readReports(k.reports, i.OnUnpack, func() {
		if i.OnStart != nil {
			i.OnStart(int(k.init.child))
		}
	})
	close(done)
	stopping.Wait()
	if readErr == nil {
		report.Note = joinNotes(report.Note, i.awaitFiles(k.reports))
	}
	exit, err := i.outcome(ctx, report, began, readErr)
	exit.Usage = report.Usage
	return exit, err
}

// stopWith tells the init to stop the container when ctx ends, and kills the init if it does not answer. It returns when done is
// closed.
func (k *Kept) stopWith(ctx context.Context, grace time.Duration, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	_ = k.message() // it fails if the init has ended
	kill := time.NewTimer(grace + KillDelay)
	defer kill.Stop()
	select {
	case <-done:
	case <-kill.C:
		_ = k.init.child.kill()
		<-done
	}
}

// Close ends the init.
func (k *Kept) Close() {
	if k.init == nil {
		return
	}
	_ = unix.Close(k.orders)
	_ = k.init.control.Close() // it ends now
	_ = k.init.report.Close()
	_, _ = k.init.child.wait()
	k.init = nil
}
