package bridge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// writeSite returns what answers messages for a bridge with one running bundle, 0x1, and its working directory.
func writeSite(t *testing.T) (*replier, *plan.Row, string) {
	t.Helper()
	l := spool.Layout(t.TempDir())
	a := &replier{inForce: following(plan.Policy{Layout: l}), service: sameBundle{}, view: &view{}, inbox: &inbox{}}
	a.inbox.init()
	r := &plan.Row{Bundle: "0x1", Attempt: plan.Attempt{Number: 1, OnDisk: "1-b1", Begun: &spool.Started{}}, Phase: plan.Running, Run: &codalab.RunBundle{
		Dependencies: []codalab.RunDependency{{Dependency: codalab.Dependency{ChildPath: "dep"}}},
	}}
	a.view.rows = map[string]*plan.Row{"0x1": r}
	dir := l.RunDir("0x1", "1-b1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return a, r, dir
}

// sameBundle is a server that has each bundle still.
type sameBundle struct{ BundleService }

func (sameBundle) Standing(context.Context, string) (codalab.Standing, error) {
	return codalab.Standing{}, nil
}

func writeTo(a *replier, name string) error {
	return a.applyWrite(context.Background(), codalab.Message{Type: codalab.MessageWrite, UUID: "0x1", Subpath: name, String: "hello"})
}

// remarks takes what has been remarked for the bundle's history.
func remarks(a *replier) string {
	news := a.inbox.drain().news
	if len(news) == 0 {
		return ""
	}
	return news[0].Remark
}

func TestMessageIsWrittenIntoPlainFilesOnly(t *testing.T) {
	t.Parallel()
	a, r, dir := writeSite(t)
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(dir, "file"), []byte("a longer text"), 0o600), os.Symlink("/etc/hostname", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []plan.Phase{plan.Running, plan.Stopping} { // the command may still run, and clean up
		r.Phase = phase
		for _, name := range []string{"file", "fresh"} {
			if err := writeTo(a, name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "hello" {
				t.Errorf("%s holds %q, %v", name, got, err)
			}
		}
	}
	if got := remarks(a); got != "" {
		t.Errorf("remarked %q", got)
	}
	for _, name := range []string{"pipe", "out", "..", "a/b", ".", ""} {
		if err := writeTo(a, name); err == nil {
			t.Errorf("wrote into %q", name)
		}
		if got := remarks(a); !strings.HasPrefix(got, "a write to \""+name+"\" was lost: ") {
			t.Errorf("%q: remarked %q", name, got)
		}
	}
}

func TestWriteThatIsLostIsKeptInTheHistory(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(a *replier, r *plan.Row) string{
		"the run had ended": func(_ *replier, r *plan.Row) string {
			r.Phase = plan.Collecting
			return "msg"
		},
		"the run had not begun": func(_ *replier, r *plan.Row) string {
			r.Phase, r.Begun = plan.Queued, nil
			return "msg"
		},
		"that is a dependency": func(*replier, *plan.Row) string { return "dep" },
		// The command would not see it.
		"its working directory is on its node's own disk": func(a *replier, _ *plan.Row) string {
			a.inForce.now().Queues = map[string]plan.Queue{"": {WorkingDirDisk: spool.WorkingDirLocal}}
			return "msg"
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			a, r, dir := writeSite(t)
			name := change(a, r)
			if err := writeTo(a, name); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if got := remarks(a); got != "a write to \""+name+"\" was lost: "+want {
				t.Errorf("remarked %q", got)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("wrote %v, %v", entries, err)
			}
		})
	}
	a, _, _ := writeSite(t)
	a.view.rows = nil
	if err := writeTo(a, "msg"); err == nil || remarks(a) != "" {
		t.Errorf("written into a run that is not here: %v", err)
	}
}
