package container_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/engine"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// networkedDocker returns a Docker with its usual network, on a node of its own, and the services of that node and of
// another machine.
func networkedDocker(t *testing.T) (w testRuntime, node, other *host) {
	t.Helper()
	testenv.Containers(t)
	inside, outside := testenv.NewNetNS(t), testenv.NewNetNS(t)
	inside.Connect(t, "192.0.2.1/24", outside, "192.0.2.2/24")
	d := &testenv.Docker{In: inside}
	t.Cleanup(func() { must(t, d.Remove()) })
	address, program := d.Host(t)
	return testRuntime{Engine: &engine.Runtime{
		Program: program, Helper: enter.Path(t),
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "DOCKER_HOST=" + address},
	}}, startHostIn(t, inside.Do, "192.0.2.1"), startHostIn(t, outside.Do, "192.0.2.2")
}

// The walls are the network namespace, and for the node's loopback interface also Linux, which takes no packet for it
// from another interface (Documentation/networking/ip-sysctl.rst: route_localnet).
func TestNetworkOfDockerReachesOtherMachinesAndNotTheNodesOwnServices(t *testing.T) {
	t.Parallel()
	w, node, other := networkedDocker(t)
	own := fmt.Sprintf("127.0.0.1:%d", node.port())
	command := fmt.Sprintf("/reach tcp %[1]s %[2]s %[3]s; /reach unix %[4]s; /reach around any %[3]s 127.1.2.3:%[5]d 0.0.0.0:%[5]d; /reach tcp %[1]s",
		other.open.Addr(), node.open.Addr(), own, node.abstract, node.port())
	name := w.load(t, shellConfig(), smallRoot(t)...)
	for network, want := range map[container.Network][]string{
		container.NoNetwork: {
			other.open.Addr().String() + ": no: dial tcp " + other.open.Addr().String() + ": connect: network is unreachable",
			own + ": no: dial tcp " + own + ": connect: connection refused",
			node.abstract + ": no: dial unix " + node.abstract + ": connect: connection refused",
		},
		container.PrivateNetwork: {
			other.open.Addr().String() + ": the host's address", node.open.Addr().String() + ": the host's address",
			own + ": no: dial tcp " + own + ": connect: connection refused",
			node.abstract + ": no: dial unix " + node.abstract + ": connect: connection refused", "frame: sent",
		},
		container.HostNetwork: {
			other.open.Addr().String() + ": the host's address", node.open.Addr().String() + ": the host's address",
			node.abstract + ": the host's abstract socket",
		},
	} {
		t.Run("network "+string(network), func(t *testing.T) {
			t.Parallel()
			c := container.Container{PinnedReference: name, Network: network, ShellCommand: command}
			c.Binds = []container.Bind{{Source: reach.Path(t), Target: "/reach", ReadOnly: true}}
			if network == container.HostNetwork {
				c.ShellCommand = fmt.Sprintf("/reach tcp %s %s; /reach unix %s", other.open.Addr(), node.open.Addr(), node.abstract)
			}
			got := strings.Split(w.shell(t, c), "\n")
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("no line %q in %q", line, got)
				}
			}
			if reached := node.reached(); len(reached) > 0 {
				t.Errorf("the node's own services got %q", reached)
			}
		})
	}
}

// wall returns a wall of package walls.
func wall(t *testing.T, name string) walls.Wall {
	t.Helper()
	all := walls.All()
	i := slices.IndexFunc(all, func(w walls.Wall) bool { return w.Name == name })
	if i < 0 {
		t.Fatalf("package walls has no wall %q", name)
	}
	return all[i]
}

// neighboursPort tries a port of a bundle from another one that requests a network, too. Nothing listens on the port: the
// answer of the other bundle's kernel is a refusal.
func (w testRuntime) neighboursPort(t *testing.T, image container.Container) (reached bool) {
	t.Helper()
	image.Network = container.PrivateNetwork
	image.Binds = []container.Bind{{Source: reach.Path(t), Target: "/reach", ReadOnly: true}}
	one, two := image, image
	one.ShellCommand = "cat /proc/net/fib_trie; echo begun; exec sleep 1000"
	r := w.start(t, one)
	r.awaitOutput("begun\n")
	address := localAddress(t, r.output())
	two.ShellCommand = "/reach tcp " + address + ":9"
	output := w.shell(t, two)
	must(t, r.cmd.Process.Signal(syscall.SIGTERM))
	if answer := r.wait(); answer.Error != "" {
		t.Errorf("%+v", answer)
	}
	return strings.HasSuffix(output, ": connect: connection refused\n")
}

// localAddress finds the address of a network in /proc/net/fib_trie.
func localAddress(t *testing.T, trie string) string {
	t.Helper()
	address := ""
	for line := range strings.Lines(trie) {
		if _, found, ok := strings.Cut(line, "|-- "); ok {
			address = strings.TrimSpace(found)
		}
		if strings.Contains(line, "/32 host LOCAL") && !strings.HasPrefix(address, "127.") {
			return address
		}
	}
	t.Fatalf("no address in %q", trie)
	return ""
}

func TestBundlesInOneNetworkOfAnEngineReachEachOther(t *testing.T) {
	t.Parallel()
	w, _, _ := networkedDocker(t)
	name := w.load(t, shellConfig(), smallRoot(t)...)
	clause := wall(t, "ports of bundles").WeakerOn(w.host(t), walls.Docker)
	if reached := w.neighboursPort(t, container.Container{PinnedReference: name}); reached != (clause != "") {
		t.Errorf("a neighbour is reached: %v, and package walls has %q", reached, clause)
	}
}

// Podman without root has slirp4netns, or pasta. Both programs of Debian 12 connect to the loopback interface if a packet
// names it, and Podman filters no packets.
func TestNetworkOfPodmanWithoutRootIsAsStrongAsItsWallSays(t *testing.T) {
	t.Parallel()
	testenv.PrivateNetwork(t)
	w, h := podmanRuntime(t), startHost(t)
	own := fmt.Sprintf("127.0.0.1:%d", h.port())
	c := h.container(t, w, fmt.Sprintf("/reach tcp %[1]s %[2]s; /reach unix %[3]s; /reach around any %[2]s; /reach tcp %[1]s", h.open.Addr(), own, h.abstract))
	got := w.shell(t, c)
	for _, line := range []string{
		h.open.Addr().String() + ": the host's address\n",
		own + ": no: dial tcp " + own + ": connect: connection refused\n",
		h.abstract + ": no: dial unix " + h.abstract + ": connect: connection refused\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %q in %q", line, got)
		}
	}
	clause := wall(t, "loopback interface").WeakerOn(w.host(t), walls.Podman)
	if reached := h.reached(); len(reached) > 0 && clause == "" {
		t.Errorf("the host's own services got %q", reached)
	} else {
		t.Logf("the host's own services got %q, and a command %s", reached, clause)
	}

	c.Network, c.ShellCommand = container.NoNetwork, fmt.Sprintf("/reach tcp %s; /reach around any %s", h.open.Addr(), own)
	if got := w.shell(t, c); !strings.Contains(got, ": connect: network is unreachable\n") {
		t.Errorf("without a network: %q", got)
	}
	if reached := h.reached(); len(reached) > 0 {
		t.Errorf("without a network the host's own services got %q", reached)
	}
}
