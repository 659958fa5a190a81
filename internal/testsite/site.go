// Package testsite starts a whole site on this machine: an image registry, a CodaLab
// server and a bridge, on the Slurm cluster of scripts/slurm-cluster. It runs the
// programs that `make install` has installed. The demo, the playground, the benchmarks
// and the end-to-end tests share the package.
//
// The server and the bridge run as the user researcher, so the caller has to be root.
// All files of a site are in one directory below /var/tmp/cl-slurm, which compute nodes
// see too. Close removes it, and ends the site's programs and jobs.
package testsite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
)

const (
	// Base is the directory of the installed programs and of the cluster.
	Base = slurmcluster.Base
	// User runs the server, the bridge and the jobs.
	User = "researcher"
)

// Options are the differences between a site and the ordinary one.
type Options struct {
	// Image is the default image of bundles; empty means the demo's image, which
	// the site serves.
	Image string
	// Config is appended to the bridge's configuration, before its queues.
	Config string
	// Queues replaces the configuration of the queues cpu, gpu, short and
	// checkpoints.
	Queues string
	// Flags are further flags of cl-bridge run.
	Flags []string
	// ServerFlags are further flags of cl-server run.
	ServerFlags []string
	// Via, if it is set, gets the server's address and returns the address that the bridge uses,
	// such as that of a proxy.
	Via func(server string) string
	// Cache is a directory that belongs to User and replaces the bridge's cache, so
	// that several sites convert an image once.
	Cache string
	// WorkerAccount has the bridge sign in with a worker account for everybody's bundles, instead of
	// as the researcher.
	WorkerAccount bool
	// SharedDisk has the bridge use the server's own store.
	SharedDisk bool
	// Slurm is the cluster; its zero value means the chosen one of scripts/slurm-cluster.
	Slurm slurmcluster.Cluster
	// SharedBytes, if it is not 0, is the size of a disk for the shared directory.
	// Compute nodes do not see that disk.
	SharedBytes int64
}

// Site is a running site.
type Site struct {
	// Dir is the site's directory, Shared the bridge's shared directory.
	Dir, Shared string
	// Server is the server's address, Image the default image.
	Server, Image string

	// password is that of User on the site's server. No other site has the same, so that a test can look for it.
	password   string
	env        []string
	credential *syscall.Credential
	options    Options
	log        *os.File
	bridge     *process
	bridgeLog  int            // size of the log at the start of the bridge
	closers    []func() error // Close calls them, the last one first
}

// queues is the configuration of a queue for each partition, and of checkpoints.
const queues = `
[queue.cpu]
default = true
partition = "cpu"
account = "lab"
default_time = "1h"
max_time = "7d"

[queue.gpu]
partition = "gpu"
account = "lab"
gres_type = "a100"
default_time = "1h"
max_time = "2d"

[queue.checkpoints]
partition = "cpu"
account = "lab"
default_time = "1h"
workdir = "local"
results = "keep"

[queue.short]
partition = "short"
account = "lab"
wckey = "proj1"
default_time = "1m"
max_time = "10m"
`

// Start starts a site. If it fails, nothing is left running.
func Start(ctx context.Context, o Options) (*Site, error) {
	s := &Site{options: o, password: "a password of the test site " + rand.Text()}
	err := s.start(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start site: %w", err), s.Close())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if s.Image = s.options.Image; s.Image == "" {
		if err := s.serveImage(ctx); err != nil {
			return err
		}
	}
	data := filepath.Join(s.Dir, "server")
	for _, account := range s.accounts() {
		args := append([]string{program("cl-server"), "user", "add", "--data", data, "--password-file", s.path("password")}, account...)
		if err := s.command(args...).Run(ctx); err != nil {
			return err
		}
	}
	args := []string{"cl-server", "run", "--data", data, "--listen", "127.0.0.1:0", "--default-cpu-image", s.Image, "--default-gpu-image", s.Image}
	args = append(args, s.options.ServerFlags...)
	if s.options.SharedDisk {
		args = append(args, "--shared-disk")
	}
	server := s.launch(args...)
	s.onClose(func() error { return server.stop(syscall.SIGTERM) })
	if err := server.waitReady(ctx, func() bool { s.Server = s.served(); return s.Server != "" }); err != nil {
		return err
	}
	s.onClose(s.endBridge)
	return s.StartBridge(ctx)
}

// bridgeAccount is the name of the bridge's own account.
const bridgeAccount = "bridge"

// accounts are the names of the server's users, with their flags. The bridge signs in as the last.
func (s *Site) accounts() [][]string {
	accounts := [][]string{{User}}
	if s.options.WorkerAccount {
		accounts = append(accounts, []string{bridgeAccount, "--worker-for", "everybody"})
	}
	return accounts
}

func (s *Site) onClose(do func() error) { s.closers = append(s.closers, do) }

// prepare makes the site's directory.
func (s *Site) prepare() error {
	if os.Geteuid() != 0 {
		return errors.New("a site runs its programs as user " + User + ": start it as root")
	}
	u, err := user.Lookup(User)
	if err != nil {
		return fmt.Errorf("%w: run scripts/setup", err)
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return err
	}
	s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if s.Dir, err = os.MkdirTemp(Base, "site-"); err != nil {
		return err
	}
	s.onClose(func() error { return os.RemoveAll(s.Dir) })
	s.Shared = s.path("shared")
	s.env = append(s.slurm().Env(Base+"/bin"), "HOME="+s.path("home"), "USER="+User)
	for _, dir := range []string{"", "home", "shared", "server"} {
		path := s.path(dir)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755), os.Chown(path, int(uid), int(gid))); err != nil {
			return err
		}
	}
	if n := s.options.SharedBytes; n > 0 {
		data := fmt.Sprintf("size=%d,uid=%d,gid=%d,mode=755", n, uid, gid)
		if err := syscall.Mount("site", s.Shared, "tmpfs", 0, data); err != nil {
			return fmt.Errorf("mount shared directory: %w", err)
		}
		s.onClose(func() error { return syscall.Unmount(s.Shared, syscall.MNT_DETACH) })
	}
	if s.options.Cache != "" {
		if err := os.Symlink(s.options.Cache, filepath.Join(s.Shared, "cache")); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"password": s.password + "\n", "bridge.toml": ""} {
		if err := errors.Join(os.WriteFile(s.path(name), []byte(text), 0o600), os.Chown(s.path(name), int(uid), int(gid))); err != nil {
			return err
		}
	}
	if err := s.writeLogin(); err != nil {
		return err
	}
	s.log, err = os.Create(s.path("log"))
	s.onClose(s.log.Close)
	return err
}

func (s *Site) path(name string) string { return filepath.Join(s.Dir, name) }

// slurm returns the site's cluster.
func (s *Site) slurm() slurmcluster.Cluster {
	if s.options.Slurm == (slurmcluster.Cluster{}) {
		return slurmcluster.Chosen()
	}
	return s.options.Slurm
}

func program(name string) string { return filepath.Join(Base, "bin", name) }

// Log returns the log lines of all programs.
func (s *Site) Log() string {
	data, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// CL runs cl as the researcher and returns its output without the last line feed.
func (s *Site) CL(ctx context.Context, args ...string) (string, error) {
	return s.Run(ctx, append([]string{program("cl")}, args...)...)
}

// GoOn writes the file go of a running bundle, whose command waits for it. The server refuses that after a while if the
// bridge, which passes it on, is too busy to check in. GoOn then tries again, some ten minutes long.
func (s *Site) GoOn(ctx context.Context, bundle string) error {
	var out string
	var err error
	for try := range 40 {
		if out, err = s.CL(ctx, "write", bundle+"/go", "go"); err == nil || try > 0 && strings.Contains(out, "it is not running") {
			return nil // the write that was refused came all the same
		}
		if !strings.Contains(out, "when the worker is back") {
			break
		}
	}
	return fmt.Errorf("cl write %s/go: %w\n%s", bundle, err, out)
}

// Create makes a run of User in a queue without cl, which refuses what the queue can never run: as CodaLab's own cl and
// other programs do. It returns the bundle.
func (s *Site) Create(ctx context.Context, queue, command string, requests codalab.Metadata) (string, error) {
	api, err := client.New(s.Server, client.Options{
		ClientID:    client.CommandClient,
		Credentials: func(context.Context) (string, string, error) { return User, s.password, nil },
	})
	if err != nil {
		return "", err
	}
	sheet, err := api.FindWorksheet(ctx, "", client.HomeWorksheet)
	if err != nil {
		return "", err
	}
	metadata := codalab.Metadata{}
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if !key.Generated && !key.Optional {
			metadata[key.Key] = key.Default
		}
	}
	maps.Copy(metadata, requests)
	metadata["name"], metadata["request_queue"] = "run", queue
	b, err := api.CreateBundle(ctx, client.NewBundle{Worksheet: sheet.UUID, Type: codalab.TypeRun, Command: command, Metadata: metadata})
	return b.UUID, err
}

// Run runs a program as the researcher, as CL does.
func (s *Site) Run(ctx context.Context, args ...string) (string, error) {
	out, err := s.command(args...).Output(ctx)
	return strings.TrimRight(string(out), "\n"), err
}

// Stream is Run, and writes the output to w while the program runs.
func (s *Site) Stream(ctx context.Context, w io.Writer, args ...string) error {
	c := s.command(args...)
	c.Stdout = w
	return c.Run(ctx)
}

// command is a command that runs as User, with the site's server as that of cl.
func (s *Site) command(args ...string) command.Command {
	env := append([]string{
		"CODALAB_HOME=" + s.path("home/.codalab"), "CL_SERVER=" + s.Server,
		"CODALAB_USERNAME=" + User, "CODALAB_PASSWORD=" + s.password,
	}, s.env...)
	args = slices.Clone(args)
	args[0] = s.slurm().Program(args[0])
	return command.Command{Args: args, Env: env, Dir: s.path("home"), Credential: s.credential}
}

// WriteExports writes shell lines that set a client of the site up. Each user has a directory of
// their own for the state of cl.
func (s *Site) WriteExports(w io.Writer) error {
	states := s.path("states")
	if err := os.Mkdir(states, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(states, 0o777|os.ModeSticky); err != nil {
		return err
	}
	slurm := s.slurm()
	_, err := fmt.Fprintf(w, `export PATH=%q:%q:"$PATH" SLURM_CONF=%q
export CL_SERVER=%q CODALAB_USERNAME=%q CODALAB_PASSWORD=%q CODALAB_HOME=%q/"$(id -un)"
`, filepath.Join(Base, "bin"), slurm.Bin, slurm.Conf, s.Server, User, s.password, states)
	return err
}

// Close ends the site's jobs and programs and removes its directory.
func (s *Site) Close() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// endBridge ends the bridge and the site's jobs.
func (s *Site) endBridge() error {
	if s.bridge == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(s.StopBridge(), s.cancelJobs(ctx))
}

// cancelJobs cancels the jobs that work in the shared directory, and waits for their
// end: until then their workers write into it.
func (s *Site) cancelJobs(ctx context.Context) error {
	out, err := s.Run(ctx, "squeue", "--me", "--noheader", "--array", "--format=%A %Z")
	if err != nil {
		return err
	}
	cancelled := map[string]bool{}
	for line := range strings.Lines(out) {
		id, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(dir, s.Shared+"/") {
			cancelled[id] = true
			if _, err := s.Run(ctx, "scancel", id); err != nil {
				return err
			}
		}
	}
	if len(cancelled) == 0 {
		return nil
	}
	return poll(ctx, func() bool {
		out, err := s.Run(ctx, "squeue", "--me", "--noheader", "--array", "--format=%A")
		if err != nil {
			return false
		}
		for id := range strings.FieldsSeq(out) {
			if cancelled[id] {
				return false
			}
		}
		return true
	})
}

// served returns the address at which the server says it serves; "" before. That it says so is the only proof: another
// program can listen on a port that was free, and a connection to a port of the kernel's own range can meet itself.
func (s *Site) served() string {
	if said := servingLine.FindStringSubmatch(s.Log()); said != nil {
		return said[1]
	}
	return ""
}

var servingLine = regexp.MustCompile(`msg=serving address=(\S+)`)

// poll waits until done returns true.
func poll(ctx context.Context, done func() bool) error {
	for !done() {
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
