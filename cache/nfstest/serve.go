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

// Options are how a server and its clients are. The zero value is a server
// whose clients cache nothing and lose nothing.
type Options struct {
	// Seed is where all that is random comes from. One program that does the
	// same again gets the same again.
	Seed uint64
	// AcregMin and AcregMax bound how long the attributes of a file are
	// believed, AcdirMin and AcdirMax those of a directory and with them its
	// listing and the names that were looked up in it, whether they are there
	// or not: acregmin and its like in nfs(5). For how long exactly is drawn
	// each time.
	AcregMin, AcregMax, AcdirMin, AcdirMax time.Duration
	// Skew is how far the server's clock is ahead of the local one.
	Skew time.Duration
}

// Server is a file server and its clients: a process of the test program's own.
type Server struct {
	tb  testing.TB
	cmd *exec.Cmd
	rpc *rpc.Client
	end func() // ends the process, which unmounts
}

// Serve exports a directory until the test ends. The test is skipped where root
// cannot mount by FUSE. The test program's TestMain calls Main.
func Serve(tb testing.TB, dir string, o Options) *Server {
	tb.Helper()
	testenv.FUSE(tb)
	self, err := os.Executable()
	must(tb, err)
	options, err := json.Marshal(served{Options: o, Dir: dir})
	must(tb, err)
	cmd := exec.Command(self) //nolint:noctx // the end of its input ends it
	cmd.Env = append(os.Environ(), optionsVariable+"="+string(options))
	cmd.Stderr = tb.Output()
	in, err := cmd.StdinPipe()
	must(tb, err)
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	s := &Server{tb: tb, cmd: cmd, rpc: rpc.NewClient(pipes{Reader: out, WriteCloser: in})}
	s.end = sync.OnceFunc(func() {
		_ = s.rpc.Close() // which may have ended already, as a killed process has
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || exit.Exited()) {
			tb.Errorf("the file server: %v", err)
		}
	})
	tb.Cleanup(s.end)
	s.Inject() // answers when the server is there
	return s
}

// Mount makes one more client, a host of its own, and mounts the directory
// there at an existing one. All users of the machine may look into it.
func (s *Server) Mount(dir string) {
	s.tb.Helper()
	must(s.tb, s.rpc.Call("Server.Mount", dir, new(bool)))
}

// Inject replaces the faults that strike from now on, on all clients. Without
// any nothing goes wrong but by Options.
func (s *Server) Inject(faults ...Fault) {
	s.tb.Helper()
	must(s.tb, s.rpc.Call("Server.Inject", faults, new(bool)))
}

// Counts returns how often each kind has happened so far, on all clients.
func (s *Server) Counts() map[Kind]int {
	s.tb.Helper()
	counts := map[Kind]int{}
	must(s.tb, s.rpc.Call("Server.Counts", false, &counts))
	return counts
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// served is what the server's process is told.
type served struct {
	Options

	Dir string
}

// pipes are the two ends that one process has of two pipes.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// Main does not return in a process that Serve has made: there it serves until
// the test program has ended, however that happens, and unmounts. Everywhere
// else it does nothing.
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

// service is what the test program calls.
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
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) // the end of standard input is the end
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

// Mount is Server.Mount: it has the kernel ask a client for what is below dir. The
// kernel checks permissions, by the attributes that the client tells.
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

// unmount ends all clients, also those that are in use.
func (s *service) unmount() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed []error
	for _, dir := range s.mounts {
		failed = append(failed, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return errors.Join(failed...)
}
