package testsite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// search looks for values that must not be where others could find them: passwords, tokens and secrets, by their names.
type search struct {
	*testing.T
	values map[string]string
	// dirs are searched whole, but for the files in which a value may be.
	dirs    []string
	allowed map[string]string // by path: the names of its values
}

// files returns the places of the values in files.
func (s *search) files() (found []string) {
	s.Helper()
	for _, dir := range s.dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
				return nil
			}
			if err != nil {
				return err
			}
			names, err := s.inFile(path)
			for _, name := range names {
				if !strings.Contains(s.allowed[path], name) {
					found = append(found, name+" in "+path)
				}
			}
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	return found
}

// inFile returns the names of the values in a file, which may be gone already.
func (s *search) inFile(path string) (names []string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const part, overlap = 1 << 20, 1 << 10
	text := make([]byte, 0, part+overlap)
	for {
		n, err := io.ReadFull(f, text[len(text):part+overlap])
		text = text[:len(text)+n]
		names = append(names, s.in(text)...)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EINVAL): // a namespace, which has no text
			return names, nil
		case err != nil:
			return names, err
		}
		text = append(text[:0], text[len(text)-overlap:]...)
	}
}

// in returns the names of the values in a text.
func (s *search) in(text []byte) (names []string) {
	for name, value := range s.values {
		if bytes.Contains(text, []byte(value)) {
			names = append(names, name)
		}
	}
	return names
}

// processes returns the places of the values in the environments and the arguments of all processes. own reports whether a
// process is one that has the value for good.
func (s *search) processes(own func(pid int, args, name string) bool) (found []string) {
	s.Helper()
	pids, err := procstat.List("/proc")
	if err != nil {
		s.Fatal(err)
	}
	for _, pid := range pids {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // it may end now
		line := strings.Join(strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00"), " ")
		for kind, text := range map[string][]byte{"arguments": args, "environment": env} {
			for _, name := range s.in(text) {
				if !own(pid, line, name) {
					found = append(found, fmt.Sprintf("%s in the %s of process %d: %.80s", name, kind, pid, line))
				}
			}
		}
	}
	return found
}

// outputs returns the places of the values in the outputs of programs. Some versions of Slurm lack an option.
func (s *search) outputs(site *testsite.Site, commands ...[]string) (found []string) {
	s.Helper()
	for _, args := range commands {
		out, err := site.Run(s.Context(), args...)
		for _, name := range s.in([]byte(out + fmt.Sprint(err))) {
			found = append(found, name+" in the output of "+strings.Join(args, " "))
		}
	}
	return found
}

// secretCommand prints its secret, whole and in pieces, and waits.
const secretCommand = `echo "key $KEY"; echo "$KEY" >&2; printf "%s\n" "${#KEY} bytes"; while [ ! -e go ]; do sleep 0.1; done; test -n "$KEY"`

// TestNoSecretIsLeftAnywhere runs a bundle with a secret. While it runs, and after it has ended, the test looks for the values
// of the secret, of the password and of the user's tokens in all files of the site and of Slurm, in the answers of Slurm,
// the bridge and the server, and in the environments and arguments of all processes. First it plants them, to see that it
// would find them.
func TestNoSecretIsLeftAnywhere(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(""), Flags: []string{"--debug", "--trace", "trace"}})
	look := searchSite(t, s)
	setSecret(t, s, "KEY", look.values["secret"])
	bundle := run(t, s, "cpu", secretCommand, "--secret", "KEY")
	job := begun(t, s, bundle)
	untilPrinted(t, s, bundle, fmt.Sprintf("key ***\n%d bytes", len(look.values["secret"])))

	look.findsWhatIsPlanted(t, s)
	look.nothing(t, s, bundle, job, "while it runs")
	if !look.commandHas(t) {
		t.Error("the command does not have the secret in its environment")
	}
	release(t, s, bundle)
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stderr"); got != "***" {
		t.Errorf("standard error %q", got)
	}
	if got := field(t, s, bundle, "secrets"); got != "['KEY']" {
		t.Errorf("secrets %q", got)
	}
	look.nothing(t, s, bundle, job, "after its end")
}

// later submits jobs that do not begin while the test runs.
const later = `
case "$*" in *--version*|*--test-only*) exec $BIN/sbatch "$@";; esac
exec $BIN/sbatch --begin=now+3600 "$@"
`

// TestSecretOfAJobThatNeverBeginsIsRemoved kills a bundle whose job waits in Slurm, while the bridge is down.
func TestSecretOfAJobThatNeverBeginsIsRemoved(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(wrapped(t, map[string]string{"sbatch": later}))})
	look := searchSite(t, s)
	setSecret(t, s, "KEY", look.values["secret"])
	bundle := run(t, s, "cpu", "true", "--secret", "KEY")
	testenv.Await(t, "the job waits", func() bool {
		e, known := explained(t, s, bundle)
		return known && e.Phase == "queued"
	})
	file := one(t, filepath.Join(s.Shared, "spool", "secrets", "*"))
	for path, mode := range map[string]fs.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	look.allowed[file] = "secret"
	look.nothing(t, s, bundle, fmt.Sprint(explain(t, s, bundle).Job), "while it waits")
	delete(look.allowed, file)
	err := s.KillBridge()
	cl(t, s, "kill", bundle)
	if err := errors.Join(err, s.StartBridge(t.Context())); err != nil {
		t.Fatal(err)
	}
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s", state)
	}
	testenv.Await(t, "the file with the secret is gone", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
	look.nothing(t, s, bundle, fmt.Sprint(explain(t, s, bundle).Job), "after its end")
}

// searchSite returns a search for the values of a site.
func searchSite(t *testing.T, s *testsite.Site) *search {
	t.Helper()
	cl(t, s, "work") // signs in
	home := filepath.Join(s.Dir, "home", ".codalab")
	tokens := one(t, filepath.Join(home, "cl-tokens", "*.json"))
	var token map[string]any
	text, err := os.ReadFile(tokens)
	if err = errors.Join(err, json.Unmarshal(text, &token)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	login, err := os.ReadFile(s.PasswordFile())
	if err != nil {
		t.Fatal(err)
	}
	_, password, _ := strings.Cut(strings.TrimSpace(string(login)), "\n")
	look := &search{
		T:      t,
		values: map[string]string{"secret": "correct-horse-" + rand.Text(), "password": password},
		dirs:   []string{s.Dir, filepath.Join(slurmcluster.Base, "cluster")},
		allowed: map[string]string{
			s.PasswordFile(): "password", filepath.Join(s.Dir, "password"): "password",
			tokens: "access token, refresh token, device token",
		},
	}
	for _, kind := range []string{"access", "refresh", "device"} {
		if value, ok := token[kind].(string); ok {
			look.values[kind+" token"] = value
		}
	}
	if look.values["access token"] == "" || look.values["refresh token"] == "" {
		t.Fatalf("no tokens in %s", text)
	}
	return look
}

// setSecret sets a secret of the researcher.
func setSecret(t *testing.T, s *testsite.Site, name, value string) {
	t.Helper()
	file := filepath.Join(s.Dir, "home", "value")
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, s, "sh", "-c", "cl secret set "+name+" <value")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// nothing fails the test if a value is somewhere.
func (s *search) nothing(t *testing.T, site *testsite.Site, bundle, job, when string) {
	t.Helper()
	found := slices.Concat(s.files(), s.processes(isOwn), s.outputs(
		site,
		[]string{"scontrol", "show", "job", "-dd", job},
		[]string{"scontrol", "write", "batch_script", job, "-"},
		[]string{"sacct", "--jobs", job, "--format", "ALL", "--parsable2"},
		[]string{"sacct", "--jobs", job, "--batch-script"},
		[]string{"sacct", "--jobs", job, "--env-vars"},
		[]string{program, "explain", "--config", site.BridgeConfig(), bundle},
		[]string{program, "explain", "--config", site.BridgeConfig(), "--json", bundle},
		[]string{program, "status", "--config", site.BridgeConfig()},
		[]string{"cl", "info", "-v", "--json", bundle},
		[]string{"cl", "secret", "ls", "--json"},
		[]string{"cl", "cat", bundle + "/stdout"},
		[]string{"cl", "cat", bundle + "/stderr"},
	))
	for _, place := range found {
		t.Errorf("%s: %s", when, place)
	}
}

// isOwn reports whether a process may have a value: the command has its secret. While the test looks, it runs no program
// with the password.
func isOwn(pid int, args, name string) bool {
	return name == "secret" && isContained(pid) && (strings.HasSuffix(args, "-c "+secretCommand) || args == "sleep 0.1")
}

// isContained reports whether a process is in a container: in a PID namespace below this one.
func isContained(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, ids, _ := strings.Cut(string(status), "\nNSpid:")
	ids, _, _ = strings.Cut(ids, "\n")
	return err == nil && len(strings.Fields(ids)) > 1
}

// commandHas reports whether the search finds the secret in the command's own environment.
func (s *search) commandHas(t *testing.T) bool {
	t.Helper()
	own := s.processes(func(pid int, args, name string) bool { return name != "secret" || !isOwn(pid, args, name) })
	return slices.ContainsFunc(own, func(place string) bool { return strings.HasPrefix(place, "secret in the environment") })
}

// findsWhatIsPlanted plants all values in a file, in the environment of a process and in its arguments.
func (s *search) findsWhatIsPlanted(t *testing.T, site *testsite.Site) {
	t.Helper()
	all := strings.Join(slices.Collect(maps.Values(s.values)), " ")
	file := filepath.Join(site.Shared, "spool", "planted")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 2<<20-7)+all), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	planted := exec.CommandContext(ctx, "sh", "-c", "read x", all)
	planted.Env = []string{"PLANTED=" + all}
	in, err := planted.StdinPipe()
	if err == nil {
		err = planted.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the process has its arguments", func() bool {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", planted.Process.Pid))
		return bytes.Contains(args, []byte(all))
	})
	found := strings.Join(slices.Concat(s.files(), s.processes(isOwn), s.outputs(site, []string{"cat", "/dev/null"}, []string{"echo", all})), "\n")
	for name := range s.values {
		for _, place := range []string{
			name + " in " + file, fmt.Sprintf("%s in the environment of process %d", name, planted.Process.Pid),
			fmt.Sprintf("%s in the arguments of process %d", name, planted.Process.Pid), name + " in the output of echo",
		} {
			if !strings.Contains(found, place) {
				t.Errorf("the search does not find the planted %s", place)
			}
		}
	}
	stop()
	_ = errors.Join(in.Close(), planted.Wait()) // it was killed
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
