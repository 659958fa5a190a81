package nfstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// optionsVariable makes a process of a test program a server.
const optionsVariable = "NFSTEST_OPTIONS"

// Options configures a server and its clients. With the zero value, the clients cache nothing and
// lose nothing.
type Options struct {
	// Seed starts all random numbers. A program that repeats its calls gets the same faults again.
	Seed uint64
	// AcregMin and AcregMax limit the time for which a client trusts the attributes of a file.
	// AcdirMin and AcdirMax do so for a directory, its listing and the names looked up in it,
	// existing or not (nfs(5): acregmin and similar options). Each time is random between its
	// limits.
	AcregMin, AcregMax, AcdirMin, AcdirMax time.Duration
	// Skew is the lead of the server's clock over the local one.
	Skew time.Duration
}

// Server is a file server with its clients, in a process of the test program.
type Server struct {
	tb  testing.TB
	cmd *exec.Cmd
	rpc *rpc.Client
	end func() // ends the process, which unmounts
}

// Serve exports a directory until the test ends. It skips the test if root cannot mount by FUSE.
// The test program's TestMain must call Main.
func Serve(tb testing.TB, dir string, o Options) *Server {
	tb.Helper()
	testenv.FUSE(tb)
	self, err := os.Executable()
	testenv.Must(tb, err)
	options, err := json.Marshal(served{Options: o, Dir: dir})
	testenv.Must(tb, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), optionsVariable+"="+string(options))
	cmd.Stderr = tb.Output()
	in, err := cmd.StdinPipe()
	testenv.Must(tb, err)
	out, err := cmd.StdoutPipe()
	testenv.Must(tb, err)
	testenv.Must(tb, cmd.Start())
	s := &Server{tb: tb, cmd: cmd, rpc: rpc.NewClient(pipes{Reader: out, WriteCloser: in})}
	s.end = sync.OnceFunc(func() {
		_ = s.rpc.Close() // it may have ended already, if the process was killed
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || exit.Exited()) {
			tb.Errorf("the file server: %v", err)
		}
	})
	tb.Cleanup(s.end)
	s.Inject() // waits until the server answers
	return s
}

// Mount makes another client, which acts as another host, and mounts the export at the existing
// directory dir. All users of the machine may use it.
func (s *Server) Mount(dir string) {
	s.tb.Helper()
	testenv.Must(s.tb, s.rpc.Call("Server.Mount", dir, new(bool)))
}

// Inject replaces the active faults of all clients. Without faults, only Options make clients
// differ from a local disk.
func (s *Server) Inject(faults ...Fault) {
	s.tb.Helper()
	testenv.Must(s.tb, s.rpc.Call("Server.Inject", faults, new(bool)))
}

// Counts returns the count of each kind so far, of all clients together.
func (s *Server) Counts() map[Kind]int {
	s.tb.Helper()
	counts := map[Kind]int{}
	testenv.Must(s.tb, s.rpc.Call("Server.Counts", false, &counts))
	return counts
}

// served configures the server's process.
type served struct {
	Options

	Dir string
}

// pipes are one process's ends of two pipes.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// Main serves in a process that Serve has started. It returns there never, and ends the process and
// its mounts when the test program has ended or was killed. In other processes it does nothing.
func Main() {
	options, ok := os.LookupEnv(optionsVariable)
	if !ok {
		return
	}
	if err := serve([]byte(options)); err != nil {
		fmt.Fprintln(os.Stderr, "nfstest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// service has the methods that the test program calls.
type service struct {
	options Options
	export  *export
	faults  *faults
	clients sync.WaitGroup // they end with the process

	mu     sync.Mutex
	mounts []string
}

func serve(options []byte) error {
	var o served
	if err := json.Unmarshal(options, &o); err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) // only the end of standard input ends it
	unix.Umask(0)                                                                   // the kernel has applied the caller's
	e, err := openExport(o.Dir, o.Skew)
	if err != nil {
		return err
	}
	s := &service{options: o.Options, export: e, faults: newFaults(o.Seed)}
	server := rpc.NewServer()
	if err := server.RegisterName("Server", s); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	server.ServeConn(pipes{Reader: os.Stdin, WriteCloser: os.Stdout})
	return s.unmount()
}

// Mount is Server.Mount. It mounts a client at dir. The kernel checks permissions by the client's
// attributes.
func (s *service) Mount(dir string, _ *bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newClient(s.export, s.faults, s.options, uint64(len(s.mounts)))
	server, err := fuse.NewServer(c, dir, &fuse.MountOptions{
		AllowOther: true, Options: []string{"default_permissions"}, FsName: "nfstest", Name: "nfstest",
		DirectMountStrict: true, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOATIME,
		DisableXAttrs: true, DisableReadDirPlus: true, EnableLocks: true,
	})
	if err == nil {
		s.clients.Go(server.Serve)
		err = server.WaitMount()
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	s.mounts = append(s.mounts, dir)
	return nil
}

// Inject is Server.Inject.
func (s *service) Inject(active []Fault, _ *bool) error {
	s.faults.inject(active)
	return nil
}

// Counts is Server.Counts.
func (s *service) Counts(_ bool, counts *map[Kind]int) error {
	*counts = s.faults.total()
	return nil
}

// unmount ends all clients, even those in use.
func (s *service) unmount() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed []error
	for _, dir := range s.mounts {
		failed = append(failed, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return errors.Join(failed...)
}
