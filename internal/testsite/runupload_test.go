package testsite_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A directory with a program of several files, a file beside it and a link is sent by cl run --upload. In a job of Slurm and on
// a stand-alone worker, Python finds its modules, and the program its files, as on the laptop.
func TestUploadedDirectoryIsInTheRunAsOnTheLaptop(t *testing.T) {
	t.Parallel()
	s := site(t)
	work := workDir(t, s)
	startProgram(t, s.Program("cl-worker", "--server", s.Server, "--password-file", s.PasswordFile(), "--tag", "uploads", "--tag-exclusive",
		"--id", "uploads", "--work-dir", filepath.Join(work, "scratch"), "--fetch-private", "127.0.0.1"), work)
	dir := filepath.Join(t.TempDir(), "project")
	for p := filepath.Dir(dir); p != os.TempDir(); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil { // the researcher reads it
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"train.py":       "import helper\nfrom lib import model\nprint(helper.x, model.x, open('conf/a.txt').read(), open('link.txt').read())\nopen('out', 'w')\n",
		"helper.py":      "x = 1\n",
		"lib/model.py":   "x = open(__file__.replace('model.py', 'data.txt')).read()\n",
		"lib/data.txt":   "2",
		"conf/a.txt":     "3",
		"conf/empty.txt": "",
		"a b.txt":        "4",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a b.txt", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"cpu", "uploads"} {
		began := time.Now()
		bundle := run(t, s, queue, "python3 train.py", "--upload", dir, "-n", "uploaded")
		ready(t, s, bundle)
		t.Logf("%s: %s", queue, time.Since(began).Round(time.Millisecond))
		if got := cl(t, s, "cat", bundle+"/stdout"); got != "1 2 3 4" {
			t.Errorf("%s: printed %q", queue, got)
		}
	}
	if got := cl(t, s, "search", "type=dataset", "name=project", "tags=upload=%", ".count"); got != "1" {
		t.Errorf("%s uploads of one directory", got)
	}
}
