// Command demo shows the main job to a person: it starts a site on this machine
// (registry, CodaLab server, bridge, Slurm cluster), runs a researcher's commands, and
// prints each command and its answer. It ends with one line for machines.
//
// `demo playground` starts the same site and leaves the commands to the person.
//
// `make demo` and `make playground` run it as root. IMAGE in the environment names
// another container image.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	image := os.Getenv("IMAGE")
	var err error
	if slices.Equal(os.Args[1:], []string{"playground"}) {
		err = keepUp(ctx, os.Stdout, filepath.Join(testsite.Base, "playground"), image)
	} else {
		err = tellStory(ctx, os.Stdout, image)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// tellStory starts a site, runs the story's commands, and ends the site.
func tellStory(ctx context.Context, out io.Writer, image string) (err error) {
	d := &demo{out: out, began: time.Now()}
	d.say("# Starting an image registry, a CodaLab server and a bridge, as user %s.", testsite.User)
	if d.lake, err = makeLake(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.lake)) }()
	d.site, err = testsite.Start(ctx, testsite.Options{Image: image, Config: fmt.Sprintf("[[link]]\nroot = %q\n", d.lake)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.site.Close()) }()
	d.say("# Server %s, default image %s.", d.site.Server, d.site.Image)
	for _, chapter := range d.chapters() {
		if chapter(ctx); d.err != nil {
			lines := strings.Split(strings.TrimSpace(d.site.Log()), "\n")
			return fmt.Errorf("%w\nthe programs logged:\n%s", d.err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	}
	d.say("demo: ok bundle=%s job=%s first_instruction_s=%.2f ready_s=%.2f", d.bundle, d.job, d.first, d.ready)
	return nil
}
