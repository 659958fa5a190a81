// Package keptimages lists the images in a cache with their references and holders, and pulls and
// keeps those that an operator asks for, for `cl-bridge image`.
package keptimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// Request names the images that an operator asks for. Its zero value asks for the default images of all queues.
type Request struct {
	References []string
	// Architecture is that of the nodes, as --arch names it; empty for that of Queue, or
	// of this host.
	Architecture string
	// Queue names the queue whose nodes the images are for.
	Queue string
	// As is the reference that the one image is kept under; empty for its own.
	As string
}

// Wanted returns the images of a request. Its errors name the flag that is wrong.
func (r Request) Wanted(c config.Config) ([]images.Wanted, error) {
	var arch config.Architecture
	if r.Architecture != "" {
		arch = config.Architecture(r.Architecture).Canonical()
	}
	if err := arch.Check(); err != nil {
		return nil, fmt.Errorf("--arch: %w", err)
	}
	q := c.Queue[r.Queue]
	switch {
	case r.Queue != "" && q == nil:
		return nil, fmt.Errorf("--queue: there is no [queue.%s] in the configuration", r.Queue)
	case r.Queue != "" && arch != "" && arch != q.Architecture.Canonical():
		return nil, fmt.Errorf("--arch: the nodes of queue %s are %s", r.Queue, q.Architecture.Canonical())
	case r.Queue != "":
		arch = q.Architecture.Canonical()
	}
	if r.As != "" && len(r.References) != 1 {
		return nil, errors.New("--as wants one IMAGE")
	}
	if len(r.References) == 0 {
		return r.defaults(c, arch)
	}
	var wanted []images.Wanted
	for _, arg := range r.References {
		w, err := want(arg, r.As, arch)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

func want(from, as string, arch config.Architecture) (w images.Wanted, err error) {
	w = images.Wanted{Architecture: string(arch.Canonical()), By: whoami()}
	if w.From, err = source.ParseReference(from); err != nil {
		return w, err
	}
	if as != "" {
		if w.Reference, err = source.ParseReference(as); err != nil {
			return w, fmt.Errorf("--as: %w", err)
		}
	}
	return w, nil
}

// defaults returns the images of bundles that name none, for nodes of this architecture
// or, if it is empty, of each.
func (r Request) defaults(c config.Config, only config.Architecture) ([]images.Wanted, error) {
	var wanted []images.Wanted
	known := map[string]bool{}
	for name, q := range c.Queue {
		arch := q.Architecture.Canonical()
		if r.Queue != "" && name != r.Queue || only != "" && only != arch {
			continue
		}
		for _, reference := range c.DefaultImages(q) {
			if id := reference + " " + string(arch); !known[id] {
				known[id] = true
				w, err := want(reference, "", arch)
				if err != nil {
					return nil, err
				}
				wanted = append(wanted, w)
			}
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("--arch: no queue's nodes are %s: name the IMAGE", only)
	}
	slices.SortFunc(wanted, func(a, b images.Wanted) int {
		return cmp.Or(cmp.Compare(a.From.String(), b.From.String()), cmp.Compare(a.Architecture, b.Architecture))
	})
	return wanted, nil
}

// whoami names this user and host, for people.
func whoami() string {
	name := fmt.Sprint(os.Getuid())
	if me, err := user.Current(); err == nil {
		name = me.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// Pulled is the outcome of [Pull] for an image: the record that keeps it, or a failure.
type Pulled struct {
	// From is the image's source.
	From string `json:"image"`
	*images.KeptImage
	Failure string `json:"failure,omitempty"`

	// Err is the error of a failure.
	Err error `json:"-"`
}

// Pull brings images in one after the other, and calls done for each. The failure of one
// does not stop the others; the end of ctx does. It shows the progress on w.
func Pull(ctx context.Context, im *images.Images, wanted []images.Wanted, w io.Writer, now func() time.Time, done func(Pulled) error) error {
	for _, one := range wanted {
		bar := newBar(w, now, one.From.String()+" "+one.Architecture)
		kept, err := im.Keep(ctx, one, bar.show)
		bar.clear()
		p := Pulled{From: one.From.String(), KeptImage: &kept}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.KeptImage, p.Failure, p.Err = nil, err.Error(), err
		}
		if err := done(p); err != nil {
			return err
		}
	}
	return nil
}

// Text returns a line for a kept image.
func (p Pulled) Text() string {
	return fmt.Sprintf("%s %s %s %s, kept\n", images.ShortReference(p.Reference), p.Architecture, p.Digest, codalab.FormatSize(p.Size))
}
