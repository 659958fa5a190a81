package initproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/privatenet"
)

// networkFile, in the private directory, stands for the container's private network.
const networkFile = "network"

// forwarderWithin limits the time that a forwarder needs to make the container's interface.
const forwarderWithin = 30 * time.Second

// privateNetwork is the private network of an init's container.
type privateNetwork struct {
	namespace *privatenet.Namespace
	subnet    privatenet.Subnet
	names     privatenet.Names
	forwarder int // its process id
	log       *tail
	ended     error // the end of the forwarder
}

// startNetwork begins to make the private network if the container requests one and there is none. If that is not
// possible, the container has no network.
func (r *Root) startNetwork() {
	if r.Network != container.PrivateNetwork || r.private != nil {
		return
	}
	if k := r.Process.keeper; k != nil {
		r.private = k.root.private
		return
	}
	if err := r.startForwarder(); err != nil {
		r.refuseNetwork(err)
	}
}

func (r *Root) startForwarder() (err error) {
	switch {
	case r.NoForwarder != "":
		return errors.New(r.NoForwarder)
	case r.Process.Plain:
		return errors.New("this node's Apptainer is used with its privileges (setuid), which cannot give containers a network of their own")
	}
	routes, err := readIfThere("/proc/net/route")
	if err != nil {
		return err
	}
	n := &privateNetwork{subnet: privatenet.ChooseSubnet(string(routes))}
	if n.names, err = namesFor(n.subnet); err != nil {
		return err
	}
	if n.namespace, err = privatenet.New(filepath.Join(r.Process.PrivateDir, networkFile), n.names.Servers); err != nil {
		return err
	}
	n.forwarder, n.log, err = r.Process.startServer(privatenet.Args(r.Forwarder, n.namespace, n.subnet))
	if err == nil {
		r.private = n
	}
	return err
}

func namesFor(subnet privatenet.Subnet) (privatenet.Names, error) {
	hosts, err := readIfThere("/etc/hosts")
	if err != nil {
		return privatenet.Names{}, err
	}
	resolv, err := readIfThere("/etc/resolv.conf")
	if err != nil {
		return privatenet.Names{}, err
	}
	name, err := os.Hostname()
	if err != nil {
		return privatenet.Names{}, fmt.Errorf("read the host's name: %w", err)
	}
	return privatenet.NamesFor(hosts, resolv, name, subnet), nil
}

// forgetNetwork removes a private network after the end of all processes.
func (r *Root) forgetNetwork() error {
	if r.private == nil {
		return nil
	}
	file := r.private.namespace.Path
	r.private = nil
	if err := errors.Join(unix.Unmount(file, unix.MNT_DETACH), os.Remove(file)); err != nil {
		return fmt.Errorf("remove a network: %w", err)
	}
	return nil
}

// refuseNetwork leaves the container without a network.
func (r *Root) refuseNetwork(reason error) {
	if r.private != nil {
		_ = syscall.Kill(r.private.forwarder, syscall.SIGKILL) // it may have ended
		r.private = nil
	}
	r.Network, r.Process.NoNetwork = container.NoNetwork, reason.Error()
}

// EnterNetwork waits for the private network, if the container requests one, and moves the calling thread into
// it, with the processes that the thread starts afterwards. If there is no such network, the process notes the
// reason. It returns an error only if the container cannot run at all.
func (r *Root) EnterNetwork() error {
	if err := r.makeNetwork(); err != nil || r.Network != container.PrivateNetwork {
		return err
	}
	if r.Process.keeper != nil { // the forwarder may have ended since the last container
		return errors.Join(r.private.namespace.Forwarded(), r.private.namespace.Enter())
	}
	if err := r.private.namespace.Enter(); err != nil {
		r.refuseNetwork(err)
	}
	return nil
}

// makeNetwork waits for the private network, if the container requests one. If there is none, the process notes the reason. A container
// of a keeper has the keeper's.
func (r *Root) makeNetwork() error {
	r.startNetwork() // unless Mount has done so
	if r.Network != container.PrivateNetwork || r.Process.keeper != nil {
		return nil
	}
	refusal, err := r.awaitForwarder()
	if err != nil {
		return err
	}
	if refusal == nil {
		refusal = r.private.namespace.Configure(r.private.subnet)
	}
	if refusal != nil {
		r.refuseNetwork(refusal)
	}
	return nil
}

// awaitForwarder waits until the forwarder has made the interface and the interface has its filter. A refusal is the reason
// why that is not possible. To look into a forwarder all the time would take as much processor time as all else that an init does.
func (r *Root) awaitForwarder() (refusal, err error) {
	n := r.private
	changed := n.namespace.Changed()
	tick := time.NewTicker(forwarderWithin) // until there is an interface
	defer tick.Stop()
	late := time.NewTimer(forwarderWithin)
	defer late.Stop()
	for n.ended == nil {
		if done, err := privatenet.Confine(n.forwarder, n.subnet); done || err != nil {
			return err, nil
		}
		select {
		case d := <-r.Process.Deaths:
			if err := r.Lost(d); err != nil {
				return nil, err
			}
		case <-r.Process.Stop:
			return nil, errStopped
		case <-late.C:
			return fmt.Errorf("%s made no network within %s", filepath.Base(r.Forwarder), forwarderWithin), nil
		case <-changed: // slirp4netns makes the interface in a child, from which it gets the descriptor soon
			changed = nil
			tick.Reset(200 * time.Microsecond)
		case <-tick.C:
		}
	}
	return n.ended, nil
}

// loseNetwork notes the end of the forwarder. The container goes on without a network.
func (r *Root) loseNetwork(d Death) {
	n := r.private
	how := privatenet.LastMessage(n.log.String())
	if how == "" || d.Status.Signaled() {
		how = d.String()
	}
	n.ended = fmt.Errorf("%s has ended: %s", filepath.Base(r.Forwarder), how)
	r.Process.NoNetwork = n.ended.Error()
}
