package setup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A directory of a whole lab is not taken for the bridge: it gets one of its own there, if nobody can replace that.
func TestBridgeGetsADirectoryOfItsOwnInALabsTree(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	mine := "cl-slurm-" + doctor.LocalUser()
	for name, c := range map[string]struct {
		mode      os.FileMode
		dir, want string // the directory that is named, and the one that is made; empty for an error
	}{
		"new":              {0o755, "lab/new", "lab/new"},
		"the lab's":        {0o777 | os.ModeSticky, "lab", "lab/" + mine},
		"new in the lab's": {0o777 | os.ModeSticky, "lab/new", "lab/new"},
		"not sticky":       {0o777, "lab", ""},
		"new, not sticky":  {0o777, "lab/new", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			lab := filepath.Join(top, "lab")
			testenv.Must(t, errors.Join(os.Mkdir(lab, 0o700), os.Chmod(lab, c.mode)))
			var said strings.Builder
			s := session{asker: newAsker(strings.NewReader(""), &said, true)}
			got, err := s.makeOwn(filepath.Join(top, c.dir))
			if c.want == "" {
				left, readErr := os.ReadDir(lab)
				if err == nil || !strings.Contains(err.Error(), "everybody can write to "+lab+" (mode 0777)") || !strings.Contains(err.Error(), ": chmod o-w "+lab+", or chmod +t "+lab) || readErr != nil || len(left) > 0 {
					t.Errorf("%q, %v; left %v, %v", got, err, left, readErr)
				}
				return
			}
			info, statErr := os.Stat(got)
			if err != nil || got != filepath.Join(top, c.want) || statErr != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%q, %v, %v; want %s", got, err, statErr, c.want)
			}
			if tells := strings.Contains(said.String(), "so the bridge gets a directory of its own there, "+got); tells != (c.dir == "lab") {
				t.Errorf("said %q", said.String())
			}
		})
	}
}

func TestDirectoryBelowAGroupsNeedsTrust(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	lab := filepath.Join(t.TempDir(), "lab")
	testenv.Must(t, errors.Join(os.Mkdir(lab, 0o700), os.Chown(lab, -1, 5012), os.Chmod(lab, 0o770|os.ModeSetgid)))
	for want, trust := range map[string][]string{
		"the group 5012 can write to " + lab + " (mode 2770), and so put something else in the place of " + lab + "/own: chmod g-w " + lab +
			", or chmod +t " + lab + ", so that others can rename only what is theirs; or --trust @5012, if they may act as you": nil,
		"": {"@5012"},
		`--trust: there is no group "nosuch" on this host: give its number, such as "@5012"`: {"@nosuch"},
	} {
		s := session{asker: newAsker(strings.NewReader(""), io.Discard, true), Options: Options{Trust: trust}}
		_, err := s.makeOwn(filepath.Join(lab, "own"))
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("trust %q: %v\nwant %s", trust, err, want)
		}
	}
}
