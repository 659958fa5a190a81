package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// placeRuntime is a PlaceRuntime that is a function.
type placeRuntime struct{ runner }

func (placeRuntime) Close() {}

// tempOf returns the host's path of a container's TMPDIR.
func tempOf(c container.Container) string {
	i := slices.IndexFunc(c.Binds, func(b container.Bind) bool { return b.Target == tempDir(bundleOf(c)) })
	return c.Binds[i].Source
}

// lookInto returns all that a command could find of an earlier one in its TMPDIR, and in the directory above.
func lookInto(t *testing.T, c container.Container) string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(c.PrivateDir, func(name string, _ os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(name, c.PrivateDir))
		return err
	}))
	var st unix.Stat_t
	must(t, unix.Stat(tempOf(c), &st))
	attributes, err := unix.Listxattr(tempOf(c), nil)
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Error(err)
	}
	return fmt.Sprintf("%q, mode %o, owner %d, %d bytes, attributes of %d bytes, old: %t", names, st.Mode, st.Uid, st.Size, attributes, st.Mtim.Sec < 1000)
}

// A file costs the node's disk more than many commands do. But no command may find anything of an earlier one.
func TestNextMemberOfAPlaceHasThePrivateDirectoryOfTheLastOneIfThatIsAsItWas(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	data := t.TempDir()
	in := func(c container.Container, name string) string { return filepath.Join(tempOf(c), name) }
	for _, test := range []struct {
		what string
		run  func(c container.Container) error
		spec func(s *spool.Spec)
		kept bool
	}{
		{what: "does nothing", kept: true},
		{what: "leaves files", kept: true, run: func(c container.Container) error {
			return errors.Join(os.Mkdir(in(c, "d"), 0o700), os.WriteFile(in(c, "d/secret"), []byte("secret"), 0), os.Symlink("/etc", in(c, "l")), syscall.Mkfifo(in(c, "p"), 0), os.Chmod(in(c, "d"), 0))
		}},
		{what: "changes times", kept: true, run: func(c container.Container) error {
			return unix.Utimes(tempOf(c), []unix.Timeval{{Sec: 7}, {Sec: 7}})
		}},
		{what: "changes its root", kept: true, run: func(c container.Container) error {
			return os.MkdirAll(filepath.Join(c.PrivateDir, "container-1/written/upper/made"), 0o700)
		}},
		{what: "has a local working directory", kept: true, run: func(c container.Container) error {
			return os.WriteFile(filepath.Join(c.PrivateDir, workingDirName, "x"), nil, 0o600)
		}, spec: func(s *spool.Spec) { s.WorkingDirDisk = spool.WorkingDirLocal }},
		{what: "changes the mode", run: func(c container.Container) error { return os.Chmod(tempOf(c), os.ModeSticky|0o770) }},
		{what: "closes it", run: func(c container.Container) error { return os.Chmod(tempOf(c), 0) }},
		{what: "sets an attribute", run: func(c container.Container) error {
			err := unix.Setxattr(tempOf(c), "user.left", []byte("secret"), 0)
			if errors.Is(err, unix.ENOTSUP) { // not on this disk
				err = os.Chmod(tempOf(c), 0)
			}
			return err
		}},
		{what: "leaves many files", run: func(c container.Container) error {
			for i := range mostLeft + 1 {
				if err := os.WriteFile(in(c, fmt.Sprint(i)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}},
		{what: "is in the host's network", spec: func(s *spool.Spec) { s.Network, s.HostNetwork = true, true }},
		{what: "has a dependency", kept: true, spec: func(s *spool.Spec) {
			s.Dependencies = []spool.Dependency{{ChildPath: "data", Source: data}}
		}},
		{what: "has a dependency in place", spec: func(s *spool.Spec) {
			s.Dependencies = []spool.Dependency{{ChildPath: "data", Source: data, InPlace: true}}
		}},
		{what: "has a directory of the site", spec: func(s *spool.Spec) { s.Binds = []spool.Bind{{Source: data, Target: "/data"}} }},
		{what: "has another runtime", spec: func(s *spool.Spec) { s.Runtime = runtimes.Apptainer }},
		{what: "ends in an unknown way", run: func(container.Container) error { return errors.ErrUnsupported }},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			_, all := members(t, 3, func(_ int, s *spool.Spec) {
				if test.spec != nil {
					test.spec(s)
				}
			})
			var scratch string
			var dirs, found []string
			run := runner(func(_ context.Context, c container.Container) (container.Exit, error) {
				scratch = filepath.Dir(c.PrivateDir)
				c.OnChoice(container.Choice{Runtime: cmp.Or(c.Runtime, runtimes.Builtin)})
				c.OnStart(container.Running{PID: 1})
				dirs, found = append(dirs, c.PrivateDir), append(found, lookInto(t, c))
				if test.run == nil || bundleOf(c) == "0x2" {
					return container.Exit{}, nil
				}
				err := test.run(c)
				if err != nil && !errors.Is(err, errors.ErrUnsupported) {
					t.Error(err)
				}
				return container.Exit{}, err
			})
			p := packOf(newWorker(t, run), 1)
			p.Containers = func() PlaceRuntime { return placeRuntime{run} }
			must(t, p.Run(t.Context(), all))
			if kept := dirs[0] == dirs[1] && dirs[1] == dirs[2]; kept != test.kept || !kept && (dirs[0] == dirs[1] || dirs[1] == dirs[2]) {
				t.Errorf("the members had %q", dirs)
			}
			if found[1] != found[0] || found[2] != found[0] {
				t.Errorf("the members found %q", found)
			}
			if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
				t.Errorf("at the end the scratch has %v, %v", left, err)
			}
		})
	}
}
