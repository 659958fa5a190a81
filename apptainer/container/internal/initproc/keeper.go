package initproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/firstproc"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/keyring"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/seccomp"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// keeperWork is the work of an init that a Kept keeps.
const keeperWork = "keeper"

// ordersFD is the descriptor on which a keeper gets its orders.
const ordersFD = 5

// keeper is an init that runs containers of one image, one after another. It mounts the image once, or gets it from its caller
// (Images). Each container gets:
//
//	a thread of this process     with a new mount namespace and a new keyring, which end with the thread
//	an overlay over the image    that no container has changed; see keptRoot
//	a first process              with PID, IPC and mount namespaces, and one without a network, as bubblewrap makes them in an init of one
//	                             container. On Linux before 5.12 bubblewrap makes these, too
//
// A private network is that of all its containers, as the start of a forwarder takes longer than a small command runs.
// All processes of a container are killed and waited for before its end is reported.
type keeper struct {
	*Process // its Deaths has those of all containers

	root   *Root
	kept   keptRoot
	works  map[string]Work
	frame  *Frame // nil if bubblewrap sets its containers up
	orders chan order
	// child has an element if a child was started since reap found none, and ended is closed at the end.
	child chan struct{}
	ended chan struct{}
	// slack is the timer slack of the containers.
	slack int
	// owned are the directories of which files can be given to other ids.
	owned map[ownedDir]bool

	mu   sync.Mutex
	used container.Usage // of the processes that have ended since the last order
	// first is the first process of the container that runs, and firstPeak its largest memory, with that of its children.
	first     int
	firstPeak int64
	// running is the number of the container that runs, and stop is closed to end it; 0 and nil if there is none.
	running uint64
	stop    chan struct{}
}

// order is the order for one container.
type order struct {
	number uint64
	Spec
	stdout, stderr int
	stop           chan struct{} // closed to end it
}

// keep is the program of a keeper.
func (p *Process) keep(works map[string]Work) (code int, err error) {
	k := &keeper{
		Process: p, works: works, root: &Root{Process: p}, orders: make(chan order), owned: map[ownedDir]bool{},
		child: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	defer close(k.ended)
	p.reapOne = k.reap
	if err := p.ReadDetails(&k.root.RootSpec); err != nil {
		return 0, err
	}
	runtime.LockOSThread()
	if err := p.confine(seccomp.ForbidKeysHere); err != nil {
		return 0, err
	}
	if code, err := p.CheckOwners(); err != nil {
		return code, err
	}
	for _, step := range []func() error{p.EnterPrivateDir, p.MakeDirs, p.MountProc, k.mountImage, k.root.makeNetwork, k.makeLayer} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	if p.NoNetwork != "" { // an init of its own tells the user
		return 0, errors.New(p.NoNetwork)
	}
	if err := k.makeFrame(); err != nil {
		return 0, err
	}
	k.slack = slackenTimers() // after the start of the servers, which inherit it
	p.startReaping()          // there are no children if others serve the image, and the containers have no network
	p.Begin()
	background.Detach(k.receive) // ends with this process
	for {
		select {
		case o := <-k.orders:
			k.run(o)
		case d, ok := <-p.Deaths:
			if !ok {
				return 0, errors.New("squashfuse has ended")
			}
			if err := k.root.Lost(d); err != nil {
				return 0, err
			}
		}
		if slices.ContainsFunc(k.servers(), IsGone) {
			return 0, errors.New("a server of its containers has ended")
		}
	}
}

// mountImage mounts the image, unless the caller has done so.
func (k *keeper) mountImage() error {
	if k.Image != nil && k.root.attachImage() {
		return k.root.addOthers()
	}
	k.Image = nil
	if err := k.root.SecureSIF(); err != nil {
		return err
	}
	return k.root.mountSIF()
}

func (k *keeper) makeFrame() (err error) {
	var limit unix.Rlimit
	if k.Image != nil {
		limit = k.Image.OpenFiles
	} else if limit, err = openFilesOf(k.root.squashfuse); err != nil {
		return err
	}
	if firstproc.Supported() == nil {
		k.frame, err = makeFrame(limit)
	}
	return err
}

// servers are the programs that serve all containers.
func (k *keeper) servers() (pids []int) {
	if k.Image == nil {
		pids = append(pids, k.root.squashfuse)
	}
	if k.root.private != nil {
		pids = append(pids, k.root.private.forwarder)
	}
	return pids
}

// noteChild tells reap that there is another child.
func (k *keeper) noteChild() {
	select {
	case k.child <- struct{}{}:
	default:
	}
}

// reap waits for a child and adds its use. A child is there until its use is added: killRest and run lean on that. It returns ECHILD
// after the keeper's end only.
func (k *keeper) reap(status *syscall.WaitStatus) (pid int, err error) {
	for {
		err = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ECHILD) {
			return 0, err
		}
		select {
		case <-k.child:
		case <-k.ended:
			return 0, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var used syscall.Rusage
	pid, err = syscall.Wait4(-1, status, syscall.WNOHANG, &used)
	if err != nil {
		return 0, err
	}
	if pid == 0 { // syscall.ForkExec has waited for it, because there was no program
		return 0, syscall.EINTR
	}
	u := usageOf(&used)
	k.used.User += u.User
	k.used.System += u.System
	if pid == k.first { // it has a copy of this process's memory
		k.firstPeak = u.MemoryPeak
	} else {
		k.used.MemoryPeak = max(k.used.MemoryPeak, u.MemoryPeak)
	}
	return pid, nil
}

// receive receives orders, and requests to stop their containers, until the caller is gone.
func (k *keeper) receive() {
	for {
		o, files, err := receiveOrder()
		if err != nil {
			os.Exit(1) //nolint:forbidigo // the caller is gone, and the kernel ends all other processes
		}
		if len(files) == 0 {
			k.mu.Lock()
			if k.running == o.number && k.stop != nil {
				close(k.stop)
				k.stop = nil
			}
			k.mu.Unlock()
			continue
		}
		o.stop = make(chan struct{})
		k.mu.Lock()
		k.running, k.stop, k.used, k.first, k.firstPeak = o.number, o.stop, container.Usage{}, 0, 0
		k.mu.Unlock()
		k.orders <- o
	}
}

// receiveOrder receives an order with its files, or a request to stop the container of this number, without files.
func receiveOrder() (o order, files []int, err error) {
	number, rights := make([]byte, 8), make([]byte, unix.CmsgSpace(3*4))
	var n, nRights int
	for {
		n, nRights, _, _, err = unix.Recvmsg(ordersFD, number, rights, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n != len(number) {
		return o, nil, fmt.Errorf("receive an order: %d bytes, %w", n, err)
	}
	o.number = orderNumber(number)
	messages, err := unix.ParseSocketControlMessage(rights[:nRights])
	if err != nil || len(messages) == 0 {
		return o, nil, err
	}
	if files, err = unix.ParseUnixRights(&messages[0]); err != nil || len(files) != 3 {
		return o, nil, fmt.Errorf("receive an order: %d files, %w", len(files), err)
	}
	text := os.NewFile(uintptr(files[0]), "order")
	err = json.NewDecoder(text).Decode(&o.Spec)
	o.stdout, o.stderr = files[1], files[2]
	return o, files, errors.Join(err, text.Close())
}

// run runs one container, and reports its end.
func (k *keeper) run(o order) {
	m := &Process{Spec: o.Spec, Stop: o.stop, Deaths: k.Deaths, reports: k.reports, keeper: k}
	var last report
	onOwnThread(func() { last = m.do(k.works[o.Work], o.stdout, o.stderr) })
	k.leaveRoot(m)
	k.mu.Lock()
	if m.first != nil {
		k.used.MemoryPeak = max(k.used.MemoryPeak, m.first.Peak(k.firstPeak))
		m.first.Close()
	}
	last.Usage = k.used
	k.running, k.stop = 0, nil
	k.mu.Unlock()
	m.output.close()
	_, _ = unix.Close(o.stdout), unix.Close(o.stderr)
	if k.reports.Encode(last) == nil && m.Ranged {
		_ = k.reports.Encode(report{Note: m.giveBack()}) // if the caller is gone, listen ends this process
	}
}

// onOwnThread calls f in a thread that ends with it, and with its namespace and its keyring. Go never ends the first thread of a
// process.
func onOwnThread(f func()) {
	<-background.Go(func() {
		runtime.LockOSThread() // never unlocked, except for the first thread
		if unix.Gettid() == os.Getpid() {
			onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	})
}

// enter makes a new mount namespace for the calling thread, with the root of the next container.
func (k *keeper) enter() error {
	restoreTimers(k.slack)
	if err := k.readyRoot(); err != nil {
		return err
	}
	if k.frame != nil {
		if err := k.frame.keepBack(); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make its mount namespace: %w", err)
	}
	return nil
}

// mountFor completes the root of a container, which enter has mounted.
func (k *keeper) mountFor(r *Root) error {
	select {
	case <-r.Process.Stop:
		return errStopped
	default:
	}
	r.SIF, r.squashfuse, r.serverLog = k.root.SIF, k.root.squashfuse, k.root.serverLog
	var served unix.Statfs_t
	if err := unix.Statfs(LowerDir, &served); err != nil { // FUSE asks squashfuse, which may have ended since the last container
		return fmt.Errorf("mount the image: %w", err)
	}
	k.kept.reached = container.ReachesOthers(r.Network, r.Binds)
	return k.kept.makeMountPoints(r.Binds)
}

// killRest kills the processes of the last container, and waits for their end. The end of its first process, if it had one, was that of
// all.
func (k *keeper) killRest(first *firstproc.First) {
	const pause = time.Millisecond
	if first != nil && IsGone(first.PID) {
		return
	}
	servers := k.servers()
	for {
		pids, err := procstat.List("/proc")
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() || slices.Contains(servers, pid) })
		if err != nil || len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		again := time.NewTimer(pause)
		select {
		case _, ok := <-k.Deaths:
			if !ok {
				return
			}
		case <-again.C:
		}
		again.Stop()
	}
}

// confine gives up the account's keys for the calling thread and the processes that it starts. forbid installs the filter.
func (p *Process) confine(forbid func() error) error {
	if err := keyring.Leave(); err != nil {
		return err
	}
	if p.Ranged {
		if err := subids.Settle(); err != nil {
			return err
		}
	}
	if p.Plain {
		return nil
	}
	return forbid()
}
