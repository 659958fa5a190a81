package container_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/privatenet"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// reach tries to reach services of the host.
var reach = testenv.Program{Package: "./testdata/reach"}

// privateRuntime returns the built-in runtime on a machine that allows private networks.
func privateRuntime(tb testing.TB) testRuntime {
	tb.Helper()
	testenv.PrivateNetwork(tb)
	return testRuntime{}
}

// forwarders are preparations of hosts that have one forwarder each.
func forwarders() map[string]string {
	return map[string]string{
		"slirp4netns": "mount --bind /dev/null $(command -v pasta)",
		"pasta":       "mount --bind /dev/null $(command -v slirp4netns)",
	}
}

// host is the services of a host: each greets with its own name.
type host struct {
	tb testing.TB
	// loopback listens on 127.0.0.1, and packets on the same port of all addresses. open is at an address that others
	// reach.
	loopback *net.TCPListener
	packets  *net.UDPConn
	open     net.Listener
	abstract string
}

func startHost(tb testing.TB) *host {
	tb.Helper()
	return startHostIn(tb, func(listen func() error) error { return listen() }, otherAddress(tb).String())
}

// startHostIn starts the services in a network, which in enters. open listens at the address.
func startHostIn(tb testing.TB, in func(func() error) error, address string) *host {
	tb.Helper()
	h := &host{tb: tb}
	var abstract net.Listener
	must(tb, in(func() (err error) {
		abstract, err = h.listen(address)
		return err
	}))
	for name, at := range map[string]net.Listener{"the host's address": h.open, "the host's abstract socket": abstract} {
		go func() {
			for {
				conn, err := at.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(name))
				_ = conn.Close()
			}
		}()
		tb.Cleanup(func() { _ = at.Close() })
	}
	tb.Cleanup(func() { _ = errors.Join(h.loopback.Close(), h.packets.Close()) })
	return h
}

func (h *host) listen(address string) (abstract net.Listener, err error) {
	for h.packets == nil { // both at the same port
		if h.loopback, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return nil, err
		}
		h.packets, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero, Port: h.port()})
		if errors.Is(err, syscall.EADDRINUSE) {
			h.packets, err = nil, h.loopback.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	if h.open, err = net.Listen("tcp4", net.JoinHostPort(address, "0")); err != nil {
		return nil, err
	}
	h.abstract = fmt.Sprintf("@cl-slurm-test-%d", h.port())
	return net.Listen("unix", h.abstract)
}

func (h *host) port() int { return h.loopback.Addr().(*net.TCPAddr).Port }

// reached returns what has arrived at the host's loopback interface until now.
func (h *host) reached() (all []string) {
	h.tb.Helper()
	for _, s := range []syscall.Conn{h.loopback, h.packets} {
		raw, err := s.SyscallConn()
		must(h.tb, err)
		must(h.tb, raw.Control(func(fd uintptr) {
			for {
				if s == syscall.Conn(h.loopback) {
					conn, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
					if err != nil {
						return
					}
					all = append(all, "stream")
					_ = syscall.Close(conn)
					continue
				}
				text := make([]byte, 100)
				n, _, err := syscall.Recvfrom(int(fd), text, 0)
				if err != nil {
					return
				}
				all = append(all, string(text[:n]))
			}
		}))
	}
	return all
}

// otherAddress returns an address of this machine that is not its loopback interface's.
func otherAddress(tb testing.TB) net.IP {
	tb.Helper()
	all, err := net.InterfaceAddrs()
	must(tb, err)
	for _, a := range all {
		if at, ok := a.(*net.IPNet); ok && at.IP.To4() != nil && at.IP.IsGlobalUnicast() {
			return at.IP
		}
	}
	tb.Skip("needs an address beside that of the loopback interface")
	return nil
}

// container is a container with a private network that runs reach.
func (h *host) container(tb testing.TB, w testRuntime, command string) container.Container {
	tb.Helper()
	c := w.shellImage(tb)
	c.Network, c.ShellCommand = container.PrivateNetwork, command
	c.Binds = []container.Bind{{Source: reach.Path(tb), Target: "/reach", ReadOnly: true}}
	return c
}

// The wall is the network namespace.
func TestPrivateNetworkReachesOtherMachinesAndNotTheHostsOwnServices(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, preparation string
		find              func(testing.TB) testRuntime
	}{
		{"slirp4netns", forwarders()["slirp4netns"], privateRuntime},
		{"pasta", forwarders()["pasta"], privateRuntime},
		{"apptainer", "true", apptainerRuntime},
		{"apptainer with an image that it mounts itself", overlayOn, apptainerRuntime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			privateRuntime(t)
			w, h := tt.find(t), startHost(t)
			c := h.container(t, w, fmt.Sprintf("/reach tcp %s 127.0.0.1:%d; /reach unix %s; /reach listen 80", h.open.Addr(), h.port(), h.abstract))
			preparation := tt.preparation
			if preparation == overlayOn {
				if w.singularityCE {
					t.Skip("SingularityCE cannot make such an image writable")
				}
				c.SIF, c.PrivateDir = compressedShellImage(t, w.ownCompression(t)), userDir(t)
				preparation += c.PrivateDir
			}
			r := w.startOnHost(t, preparation, c)
			if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 || answer.Exit.Note != "" || answer.Exit.NoNetwork != "" {
				t.Errorf("%+v", answer)
			}
			want := fmt.Sprintf("%[1]s: the host's address\n127.0.0.1:%[2]d: no: dial tcp 127.0.0.1:%[2]d: connect: connection refused\n"+
				"%[3]s: no: dial unix %[3]s: connect: connection refused\nlistens\n", h.open.Addr(), h.port(), h.abstract)
			if r.output() != want {
				t.Errorf("output %q, want %q", r.output(), want)
			}
		})
	}
}

// The wall is the filter of the interface. The forwarders' own options do not refuse these packets.
func TestPrivateNetworkTakesNoPacketToTheHostItself(t *testing.T) {
	t.Parallel()
	for name, preparation := range forwarders() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, h := privateRuntime(t), startHost(t)
			subnet := strings.TrimSuffix(subnetOf(t), "0/24")
			gateway, nameServer := subnet+"2", subnet+"3"
			var targets []string
			for _, at := range []string{"127.0.0.1", "127.1.2.3", "0.0.0.0", "255.255.255.255", "224.0.0.1", gateway, nameServer} {
				targets = append(targets, fmt.Sprintf("%s:%d", at, h.port()))
			}
			// Without a limit of processes the command keeps CAP_NET_RAW, with which it sends frames.
			// The forwarders take packets in order: after the last answer, all earlier ones have arrived.
			c := h.container(t, w, fmt.Sprintf("/reach tcp %[1]s; /reach around tap0 %[2]s; /reach tcp %[1]s", h.open.Addr(), strings.Join(targets, " ")))
			c.MaxProcesses = -1
			r := w.startOnHost(t, preparation, c)
			if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 || strings.Count(r.output(), "the host's address") != 2 || strings.Count(r.output(), "frame: sent") != len(targets) {
				t.Errorf("%+v, output %q", answer, r.output())
			}
			if got := h.reached(); len(got) > 0 {
				t.Errorf("the host's own services got %q", got)
			}
		})
	}
}

// subnetOf returns the network between containers and forwarders of this machine.
func subnetOf(tb testing.TB) string {
	tb.Helper()
	routes, err := os.ReadFile("/proc/net/route")
	must(tb, err)
	return privatenet.ChooseSubnet(string(routes)).String()
}

func TestHostNetworkIsTheHosts(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	h := startHost(t)
	c := h.container(t, testRuntime{}, "/reach unix "+h.abstract)
	c.Network = container.HostNetwork
	if got, want := shell(t, c), h.abstract+": the host's abstract socket\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestHostThatAllowsNoPrivateNetworkGivesNone(t *testing.T) {
	t.Parallel()
	const noForwarder = "for p in slirp4netns pasta; do mount --bind /dev/null $(command -v $p); done"
	w := privateRuntime(t)
	for _, tt := range []struct{ name, preparation, want string }{
		{"no forwarder", noForwarder, "this node has neither the program slirp4netns nor pasta (package passt), one of which gives containers a network"},
		{"device is closed", "mount --bind /dev/full /dev/net/tun; mount -o remount,bind,ro,nodev /dev/net/tun", "this node does not let ordinary users open /dev/net/tun, which gives containers a network: its mode has to be 0666"},
		{"forwarder fails", "mount --bind /bin/false $(command -v slirp4netns)", "slirp4netns has ended: exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t)
			r := w.startOnHost(t, tt.preparation, h.container(t, w, fmt.Sprintf("cut -s -d: -f1 /proc/net/dev; /reach tcp %s", h.open.Addr())))
			answer := r.wait()
			if answer.Error != "" || answer.Exit.NoNetwork != tt.want {
				t.Errorf("%+v, want the reason %q", answer, tt.want)
			}
			if want := fmt.Sprintf("%[1]s: no: dial tcp %[1]s: connect: network is unreachable\n", h.open.Addr()); !strings.HasSuffix(r.output(), want) {
				t.Errorf("output %q, want %q", r.output(), want)
			}
		})
	}
}

// Nothing is left of a forwarder after the run, whatever ends it.
func TestForwarderEndsWithItsRun(t *testing.T) {
	t.Parallel()
	for name, preparation := range forwarders() {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(name+", "+signal.String(), func(t *testing.T) {
				t.Parallel()
				w, h := privateRuntime(t), startHost(t)
				r := w.startOnHost(t, preparation, h.container(t, w, "echo begun; exec sleep 1000"))
				r.awaitBegun()
				parts := r.processes()
				if comm := map[string]string{"slirp4netns": "slirp4netns", "pasta": "pas"}[name]; !strings.Contains(fmt.Sprint(parts), comm) { // passt.avx2
					t.Errorf("no %s among %v", name, parts)
				}
				must(t, r.cmd.Process.Signal(signal))
				if signal == syscall.SIGKILL {
					_ = r.cmd.Wait()
				} else if answer := r.wait(); answer.Error != "" || answer.Exit.Signal != int(syscall.SIGTERM) {
					t.Errorf("%+v", answer)
				}
				testenv.Await(t, "no process is left", func() bool {
					for _, p := range parts {
						if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)); err == nil && strings.TrimSpace(string(text)) == p.name {
							return false
						}
					}
					return true
				}, &parts)
			})
		}
	}
}

// A run goes on without its forwarder.
func TestEndOfAForwarderIsNoted(t *testing.T) {
	t.Parallel()
	w, h := privateRuntime(t), startHost(t)
	dir := userDir(t)
	c := h.container(t, w, "echo begun; while ! test -e /dir/go; do :; done; exit 6")
	c.Binds = append(c.Binds, container.Bind{Source: dir, Target: "/dir"})
	r := w.startOnHost(t, "true", c)
	r.awaitBegun()
	for _, p := range r.processes() {
		if p.name == "slirp4netns" {
			must(t, syscall.Kill(p.pid, syscall.SIGKILL))
		}
	}
	testenv.Await(t, "it has ended", func() bool { return !strings.Contains(fmt.Sprint(r.processes()), "slirp4netns") }, r.output)
	must(t, os.WriteFile(dir+"/go", nil, 0o644))
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 6 || answer.Exit.NoNetwork != "slirp4netns has ended: killed" {
		t.Errorf("%+v", answer)
	}
}

func TestProbeTriesThePrivateNetwork(t *testing.T) {
	t.Parallel()
	privateRuntime(t)
	const broken = "mount --bind /bin/false $(command -v pasta); mount --bind /bin/false $(command -v slirp4netns)"
	for preparation, want := range map[string]string{
		forwarders()["slirp4netns"]: "",
		forwarders()["pasta"]:       "",
		broken:                      "slirp4netns has ended: exit status 1",
	} {
		if got := probe(t, userDir(t), preparation).Forwarder; got.Lack != want || got.Path == "" {
			t.Errorf("%s: %+v, want %q", preparation, got, want)
		}
	}
}

// The host's name server listens on a loopback address, as that of systemd-resolved does.
func TestPrivateNetworkFindsNamesThatOnlyTheHostsOwnServerKnows(t *testing.T) {
	t.Parallel()
	w := privateRuntime(t)
	if os.Getuid() != 0 {
		t.Skip("needs root for a name server's port")
	}
	server := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&255, os.Getpid()&255)
	serveNames(t, server)
	file := filepath.Join(userDir(t), "resolv.conf")
	must(t, os.WriteFile(file, []byte("nameserver "+server+"\nsearch test.example\noptions timeout:20\n"), 0o644))
	hosts := filepath.Join(userDir(t), "hosts")
	name, err := os.Hostname()
	must(t, err)
	must(t, os.WriteFile(hosts, []byte("127.0.0.1 localhost\n127.0.1.1 "+name+".example "+name+"\n10.1.2.3 licences # of the site\n"), 0o644))
	h := startHost(t)
	c := h.container(t, w, "cat /etc/resolv.conf /etc/hosts; /reach names known unknown licences "+name)
	r := w.startOnHost(t, "mount --bind "+file+" /etc/resolv.conf; mount --bind "+hosts+" /etc/hosts", c)
	if answer := r.wait(); answer.Error != "" || answer.Exit.NoNetwork != "" {
		t.Errorf("%+v", answer)
	}
	own := strings.TrimSuffix(subnetOf(t), "0/24") + "100"
	want := fmt.Sprintf("nameserver 127.0.0.11\nsearch test.example\noptions timeout:20\n"+
		"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n%[1]s %[2]s.example %[2]s\n10.1.2.3 licences\n"+
		"known 10.9.8.7 sent\nunknown  lookup unknown on 127.0.0.11:53: no such host\nlicences 10.1.2.3 sent\n%[2]s %[1]s sent\n", own, name)
	if diff := cmp.Diff(want, r.output()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// answer answers a question for a name (RFC 1035): it knows one address.
func answer(question []byte, truncated bool) []byte {
	end := 12
	for question[end] != 0 {
		end += 1 + int(question[end])
	}
	end++ // type and class follow
	name, kind := string(question[12:end]), binary.BigEndian.Uint16(question[end:])
	flags, answers := uint16(0x8180), uint16(0)
	text := append([]byte{}, question[:end+4]...)
	switch {
	case name != "\x05known\x04test\x07example\x00":
		flags |= 3
	case truncated:
		flags |= 0x0200
	case kind == 1:
		answers = 1
		text = append(text, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 9, 8, 7)
	}
	for i, word := range []uint16{flags, 1, answers, 0, 0} {
		binary.BigEndian.PutUint16(text[2+2*i:], word)
	}
	return text
}

// serveNames serves names at an address. By UDP it tells the resolver to ask by TCP.
func serveNames(tb testing.TB, at string) {
	tb.Helper()
	packets, err := net.ListenPacket("udp4", at+":53")
	must(tb, err)
	streams, err := net.Listen("tcp4", at+":53")
	must(tb, err)
	tb.Cleanup(func() { _ = errors.Join(packets.Close(), streams.Close()) })
	go func() {
		for {
			question := make([]byte, 4096)
			n, from, err := packets.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(answer(question[:n], true), from) // the resolver asks again by TCP
		}
	}()
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var size [2]byte
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				question := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(conn, question); err != nil {
					return
				}
				text := answer(question, false)
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
			}()
		}
	}()
}

// A batch system may send TERM to every process of a job at the same time. The command still uses the network to save
// its results.
func TestNetworkOutlivesATermToAllProcesses(t *testing.T) {
	t.Parallel()
	w, h := privateRuntime(t), startHost(t)
	dir := userDir(t)
	c := h.container(t, w, fmt.Sprintf(`trap 'while ! test -e /dir/go; do sleep 0.01; done; /reach tcp %s; exit 5' TERM; echo begun; while :; do sleep 0.01; done`, h.open.Addr()))
	c.Binds, c.KillGrace = append(c.Binds, container.Bind{Source: dir, Target: "/dir"}), testenv.WaitLimit
	r := w.startOnHost(t, forwarders()["slirp4netns"], c)
	r.awaitBegun()
	for _, p := range r.processes() {
		if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 5 || answer.Exit.NoNetwork != "" || !strings.Contains(r.output(), ": the host's address\n") {
		t.Errorf("%+v, output %q", answer, r.output())
	}
}
