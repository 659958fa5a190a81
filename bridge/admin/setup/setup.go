// Package setup writes the first configuration of a bridge, from what Slurm says about its
// partitions and accounts and from an operator's answers to a few questions. The file has a
// queue for each chosen partition, and a comment for each key ([config.Keys]).
//
// Setup asks again where an answer cannot be right: an address at which no server answers, a
// refused login, a directory that cannot be written to. Without a terminal setup
// takes its own suggestions.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Options are the answers that are known beforehand, each empty where it is not, and the
// process that asks for the others.
type Options struct {
	// Path is the file to write, UsualPath the one that commands read without --config.
	Path, UsualPath string
	// UsualLedger is the ledger of a configuration that names none.
	UsualLedger  string
	Server, User string
	// PasswordFile has the password, and TokenFile a program token of the server. They stay where they are.
	PasswordFile string
	TokenFile    string
	Shared       string
	// Trust are the users and groups who may write above Shared (the key trust).
	Trust    []string
	SlurmBin string
	// Partitions get a queue. DefaultPartition has the queue of bundles that name none.
	Partitions       []string
	DefaultPartition string
	// Yes asks nothing. Force writes over files that exist.
	Yes, Force bool

	In     io.Reader
	Out    io.Writer
	Getenv func(string) string
	Now    func() time.Time
}

// UsageError means that the command line lacks something, or names a file that cannot be
// used.
type UsageError struct{ Err error }

// Error returns the cause.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// OutageError means that the server or Slurm does not answer.
type OutageError struct{ Err error }

// Error returns the cause.
func (e *OutageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OutageError) Unwrap() error { return e.Err }

// Transient reports true: another try may succeed.
func (e *OutageError) Transient() bool { return true }

// Run asks, and writes the configuration and perhaps the file of the token or the password. It returns a
// *UsageError or an *OutageError where that is the reason to fail.
func Run(ctx context.Context, o Options) error {
	s := session{Options: o, asker: newAsker(o.In, o.Out, o.Yes)}
	return s.run(ctx)
}

// session is one run of setup.
type session struct {
	Options
	asker
	draft draft
	// secret is the password or the token that the operator typed; empty where a file has it.
	secret string
	// dir is the directory of the configuration, to which a secret is written.
	dir string
	// client is signed in.
	client *client.Client
}

func (s *session) run(ctx context.Context) error {
	path, err := filepath.Abs(s.Path)
	if err != nil {
		return fmt.Errorf("find configuration: %w", err)
	}
	if s.isThere(path) {
		return fmt.Errorf("%s is there already: --force writes it anew; cl-bridge doctor checks it", path)
	}
	usable, err := s.askSlurm(ctx)
	if err != nil {
		return err
	}
	s.dir = filepath.Dir(path)
	if err := s.login(ctx); err != nil {
		return err
	}
	if err := s.share(ctx); err != nil {
		return err
	}
	if err := s.queues(ctx, usable); err != nil {
		return err
	}
	if err := s.defaultQueue(ctx); err != nil {
		return err
	}
	if errors.Is(ledger.CheckPlace(s.UsualLedger), ledger.ErrNetwork) {
		s.draft.Ledger = ledger.LocalPlace()
	}
	if err := s.settleLogin(ctx); err != nil {
		return err
	}
	return s.write(path)
}

// isThere reports whether there is a file that init must not write over.
func (s *session) isThere(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !s.Force
}

// askSlurm returns the partitions that this user may use.
func (s *session) askSlurm(ctx context.Context) ([]queue, error) {
	var err error
	if s.SlurmBin != "" {
		if s.SlurmBin, err = filepath.Abs(s.SlurmBin); err != nil { // the bridge starts elsewhere
			return nil, fmt.Errorf("find slurm.bin: %w", err)
		}
	}
	s.draft.SlurmBin = cmp.Or(s.SlurmBin, unusual(s.Getenv("PATH"), "sbatch"))
	s.draft.SlurmConf = s.Getenv("SLURM_CONF")
	slurm := &sbatch.Client{Bin: s.draft.SlurmBin, Conf: s.draft.SlurmConf}
	version, err := slurm.Version(ctx)
	if check := doctor.Commands(s.SlurmBin, version, err); err != nil {
		return nil, fmt.Errorf("%s; --slurm-bin says where it is", check.Found)
	}
	usable, leftOut, err := survey(ctx, slurm, doctor.LocalUser())
	if err != nil {
		return nil, &OutageError{err}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("find partitions: Slurm lets you use none: %s", strings.Join(leftOut, "; "))
	}
	s.draft.LeftOut = leftOut
	s.say("%s, and %d partitions that you may use: %s\n", version, len(usable), strings.Join(partitionsOf(usable), ", "))
	return usable, nil
}

// unusual returns the directory of a PATH that has a program; empty for one that is in
// everybody's PATH.
func unusual(path, program string) string {
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode().IsRegular() {
			if slices.Contains([]string{"/usr/local/bin", "/usr/bin", "/bin"}, dir) {
				return ""
			}
			return dir
		}
	}
	return ""
}

// tries bounds the answers of a person to one question.
const tries = 5

// askUntil asks for an answer that is not known, and again while try refuses it.
func (s *session) askUntil(ctx context.Context, answer *string, question, suggestion, flag string, try func() error) error {
	for n := 1; ; n++ {
		if *answer == "" {
			var err error
			if *answer, err = s.ask(ctx, question, suggestion, flag); err != nil {
				return err
			}
		}
		err := try()
		if err == nil || s.silent || n == tries {
			return err
		}
		s.say("%v\n", err)
		*answer = ""
	}
}

// share asks for the shared directory, and makes it.
func (s *session) share(ctx context.Context) error {
	return s.askUntil(ctx, &s.Shared, "A directory on a disk that the compute nodes see at the same path", s.suggestShared(), "--shared", func() error { return s.makeShared(ctx) })
}

// suggestShared returns a directory on the disk that the site names in the
// environment, or else in the home.
func (s *session) suggestShared() string {
	home, _ := os.UserHomeDir() // else there is no suggestion
	for _, dir := range []string{s.Getenv("SCRATCH"), s.Getenv("WORK"), home} {
		if filepath.IsAbs(dir) {
			return filepath.Join(dir, "cl-slurm")
		}
	}
	return ""
}

func (s *session) makeShared(ctx context.Context) error {
	dir := s.Shared
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("find your home: %w", err)
		}
		dir = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is not the absolute path of a directory", dir)
	}
	if err := diskspace.Answers(ctx, dir); err != nil {
		return fmt.Errorf("use %s as the shared directory: %w", dir, err)
	}
	dir, err := s.makeOwn(filepath.Clean(dir))
	if err != nil {
		return err
	}
	if err := doctor.Writable(ctx, dir); err != nil {
		return fmt.Errorf("use %s as the shared directory: %w", dir, err)
	}
	s.draft.Shared, s.draft.Trust = dir, s.Trust
	space, err := diskspace.Of(dir)
	if err == nil && config.DefaultLowWater().Lack(space, false) != "" {
		// Half of the free space, so that something can be run.
		s.draft.LowWater = fmt.Sprintf("%dm", max(space.Free/2, config.LeastLowWater)>>20)
	}
	return nil
}

// queues asks for the partitions that get a queue.
func (s *session) queues(ctx context.Context, usable []queue) error {
	all := partitionsOf(usable)
	answer := strings.Join(s.Partitions, ",")
	return s.askUntil(ctx, &answer, "Partitions that get a queue, of "+strings.Join(all, ", "), "all", "--partitions", func() error {
		if answer == "all" {
			return s.draft.choose(usable, all)
		}
		return s.draft.choose(usable, strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' }))
	})
}

// defaultQueue asks which partition takes the bundles that name no queue.
func (s *session) defaultQueue(ctx context.Context) error {
	return s.askUntil(ctx, &s.DefaultPartition, "Partition for runs that name no queue", s.draft.suggestDefault(), "--default", func() error {
		return s.draft.setDefault(s.DefaultPartition)
	})
}

// write writes the files, and prints the next steps.
func (s *session) write(path string) error {
	text := s.draft.text()
	if _, err := config.Parse(strings.NewReader(text)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if s.secret != "" {
		if err := atomicfile.Write(cmp.Or(s.draft.TokenFile, s.draft.PasswordFile), []byte(s.secret+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := atomicfile.Write(path, []byte(text), 0o600); err != nil {
		return err
	}
	var names []string
	for _, q := range s.draft.Queues {
		names = append(names, q.Name)
	}
	next := ""
	if s.UsualPath != path {
		next = " --config " + path
	}
	s.say("Wrote %s: queues %s\n\nNext:\n  cl-bridge doctor%s    checks all of it, with a short job on each queue\n  cl-bridge run%s       runs bundles until it is stopped\n",
		path, strings.Join(names, ", "), next, next)
	return nil
}
