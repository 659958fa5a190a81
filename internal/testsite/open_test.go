package testsite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// thief is a program that another user puts in the place of cl-worker. It keeps what it can read as the bridge's account.
const thief = `#!/bin/sh
{ id -un; cat %[1]s; } >%[2]s/stolen
chmod 666 %[2]s/stolen
`

// A disk that is opened while the bridge runs is the worst case: the bridge has judged it before.
func TestProgramThatAnotherUserPutIntoAnOpenDirectoryIsNotStarted(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often("")})
	before := run(t, s, "cpu", "true")
	ready(t, s, before)

	loot, bin := testenv.SharedDir(t), filepath.Join(s.Shared, "bin")
	workers, err := filepath.Glob(filepath.Join(bin, "*", "cl-worker"))
	if err := errors.Join(err, os.Chmod(s.Shared, 0o777), os.Chmod(loot, 0o777)); err != nil || len(workers) != 1 {
		t.Fatal(workers, err)
	}
	attack := fmt.Sprintf("mv %[1]s %[1]s.old && mkdir -p %[2]s && cat >%[3]s && chmod -R 755 %[1]s", bin, filepath.Dir(workers[0]), workers[0])
	asNobody(t, fmt.Sprintf(thief, filepath.Join(s.Dir, "password"), loot), attack)

	bundle := run(t, s, "cpu", "true")
	refused := regexp.MustCompile(`^Trying again at [^\n]*cl-worker is not the program that was put there[^\n]*$`)
	var stolen []byte
	testenv.Await(t, "the program is refused, or runs", func() bool {
		stolen, err = os.ReadFile(filepath.Join(loot, "stolen"))
		return err == nil || refused.MatchString(field(t, s, bundle, "run_status"))
	})
	if err == nil {
		t.Fatalf("another user's program has run, and has read the user's name and the password:\n%s", stolen)
	}

	// Nor is the directory used again.
	testenv.Must(t, s.StopBridge())
	const found = "everybody can write to %s (mode 0777), and so run programs as this account"
	want := regexp.QuoteMeta(fmt.Sprintf(found, s.Shared))
	for _, args := range [][]string{{"run"}, {"config", "check", "--live"}} {
		out, err := s.Run(t.Context(), append(append([]string{program}, args...), "--config", s.BridgeConfig())...)
		said := out
		var failed *command.Error
		if errors.As(err, &failed) {
			said += failed.Stderr
		}
		if err == nil || !regexp.MustCompile(`shared: `+want+`[:;] chmod o-w `+regexp.QuoteMeta(s.Shared)).MatchString(said) {
			t.Errorf("cl-bridge %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
}

// asNobody runs a shell's command as another user of this host, who has no rights.
func asNobody(t *testing.T, input, shell string) {
	t.Helper()
	c := command.Command{Args: []string{"sh", "-c", shell}, Stdin: strings.NewReader(input), Env: []string{"PATH=/usr/bin:/bin"}, Credential: testenv.Nobody(t)}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
