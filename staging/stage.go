package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Contents is where bundles' contents come from and go to. *client.Client is
// one.
type Contents interface {
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
	UploadContents(ctx context.Context, bundle string, o client.UploadOptions, body io.Reader) error
}

// Stager brings bundles' inputs into a cache on the shared disk. It is safe
// for concurrent use.
type Stager struct {
	Contents  Contents
	Cache     *cache.Cache
	Converter apptainer.Converter
	// Holder names a bundle as who needs its inputs in the cache. It may be
	// nil: nothing is pinned then.
	Holder func(bundle string) cache.Holder
	// Limits bounds what one dependency may hold; so does what the cache's disk
	// has free when its download begins.
	Limits tarstream.Limits
	// InPlace finds the data of links; where it is nil, that is fetched from
	// the server like any other.
	InPlace *InPlace
	// Store is the server's own store, where this bridge shares its disk; nil
	// otherwise.
	Store *ServerStore
	// Layout is the shared directory, which keeps some bundles' results; empty
	// where there is none.
	Layout spool.Layout
}

// Error is why something could not be brought in.
type Error struct {
	// What names it as the researcher did: an image, or a dependency.
	What string
	Err  error
	// Retry is set when another try may succeed.
	Retry bool
}

// Error says what could not be brought in and why.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.What, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether another try may succeed.
func (e *Error) Transient() bool { return e.Retry }

// Stage brings the image and the dependencies of a run in, side by side, and
// returns where they are. It blocks until all is there, or one cannot be had.
// progress is called now and then with one sentence, from one goroutine at a
// time.
func (s *Stager) Stage(ctx context.Context, run codalab.RunBundle, image string, progress func(string)) (spool.Inputs, error) {
	inputs := spool.Inputs{Dependencies: make([]spool.Dependency, len(run.Dependencies))}
	told := &teller{tell: progress}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	g.Go(func() error {
		var err error
		inputs.Image, inputs.ImageDigest, err = s.image(ctx, run, image, told)
		return err
	})
	for i, d := range run.Dependencies {
		g.Go(func() error {
			var err error
			inputs.Dependencies[i], err = s.dependency(ctx, run, d, told)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return spool.Inputs{}, err //nolint:wrapcheck // an *Error, or the context's
	}
	return inputs, nil
}

// teller passes sentences on, one at a time.
type teller struct {
	mu   sync.Mutex
	tell func(string)
}

func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tell(fmt.Sprintf(format, args...))
}

func (s *Stager) image(ctx context.Context, run codalab.RunBundle, name string, told *teller) (sif, digest string, err error) {
	if name == "" {
		return "", "", &Error{What: "image", Err: errors.New("none was asked for, and the server has no default: use --request-docker-image")}
	}
	ref, err := apptainer.ParseReference(name)
	if err != nil {
		return "", "", imageError(err)
	}
	img, err := s.Converter.Registry.Resolve(ctx, ref)
	if err != nil {
		return "", "", imageError(err)
	}
	key := cache.Key{Kind: "sif", ID: img.Digest + " " + img.Architecture + " " + s.Converter.Settings()}
	sif, err = s.Cache.Get(ctx, s.want(run, key), func(ctx context.Context, tmp string) error {
		told.say("Pulling image %s.", name)
		return s.Converter.Convert(ctx, img, tmp, func(p apptainer.Progress) {
			told.say("%s image %s: %s of %s.", doing(p.Stage), name, codalab.FormatSize(p.Done), codalab.FormatSize(p.Total))
		})
	})
	if err != nil {
		return "", "", imageError(err)
	}
	return sif, img.Digest, nil
}

// want is a bundle's request for an entry of the cache.
func (s *Stager) want(run codalab.RunBundle, key cache.Key) cache.Want {
	w := cache.Want{Key: key, Owner: run.OwnerID}
	if s.Holder != nil {
		w.Holder = s.Holder(run.UUID)
	}
	return w
}

func doing(s apptainer.Stage) string {
	if s == apptainer.Converting {
		return "Converting"
	}
	return "Pulling"
}

// imageError keeps an image's own error, which is a sentence with the image's
// name already, and says of any other that it was about the image.
func imageError(err error) error {
	var refused *apptainer.ImageError
	if errors.As(err, &refused) {
		return refused
	}
	return &Error{What: "image", Err: err, Retry: true}
}

// Changed says in a sentence for the researcher which of the data that is used
// in place is no longer as it was when it was staged; empty where none is.
func (s *Stager) Changed(ctx context.Context, inputs spool.Inputs) string {
	if s.InPlace == nil {
		return ""
	}
	return s.InPlace.Changed(ctx, inputs)
}

// dependency finds a dependency where it lies, or brings it in.
func (s *Stager) dependency(ctx context.Context, run codalab.RunBundle, d codalab.RunDependency, told *teller) (spool.Dependency, error) {
	if s.Store != nil {
		if dep, found, err := s.Store.dependency(d); found {
			return dep, err
		}
	}
	if s.InPlace != nil {
		if dep, linked, err := s.InPlace.dependency(ctx, run.OwnerID, d.Dependency); linked || err != nil {
			return dep, err
		}
	}
	source, err := s.copied(ctx, run, d.Dependency, told)
	return spool.Dependency{ChildPath: d.ChildPath, Source: source}, err
}

// copied brings the target of a dependency in, whole or the part that was
// asked for.
func (s *Stager) copied(ctx context.Context, run codalab.RunBundle, d codalab.Dependency, told *teller) (string, error) {
	target := codalab.Target{BundleUUID: d.ParentUUID, Subpath: strings.Trim(path.Clean("/"+d.ParentPath), "/")}
	if source, ok, err := s.kept(d, target); ok || err != nil {
		return source, err
	}
	source, err := s.Cache.Get(ctx, s.want(run, cache.Key{Kind: "bundle", ID: target.String()}), func(ctx context.Context, tmp string) error {
		return s.fetch(ctx, target, tmp, func(n int64) {
			told.say("Downloading dependency %s: %s done.", d.ChildPath, codalab.FormatSize(n))
		})
	})
	if err == nil {
		return source, nil
	}
	what := "dependency " + d.ChildPath + " (" + target.String() + ")"
	var answer *codalab.Error
	if errors.As(err, &answer) {
		return "", &Error{What: what, Err: errors.New(answer.Message), Retry: answer.Transient()}
	}
	return "", &Error{What: what, Err: err, Retry: !errors.Is(err, tarstream.ErrUnsafe) && !errors.Is(err, tarstream.ErrTooLarge)}
}

// fetch downloads a target to tmp.
func (s *Stager) fetch(ctx context.Context, t codalab.Target, tmp string, progress func(n int64)) error {
	r, err := s.room(tmp)
	if err != nil {
		return err
	}
	return r.explain(s.download(ctx, t, tmp, r, progress))
}

func (s *Stager) download(ctx context.Context, t codalab.Target, tmp string, r room, progress func(n int64)) error {
	from, err := s.Contents.OpenContents(ctx, t, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read
	body := &meter{r: from, tell: progress}
	if from.Type == codalab.TargetDirectory {
		return unpack(ctx, body, tmp, r.Limits)
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_, err = io.Copy(f, &bounded{r: body, limit: r.Bytes})
	if err == nil { // the researcher's file may be a program
		err = f.Chmod(fileMode(ctx, s.Contents, t))
	}
	return errors.Join(err, f.Close())
}

func fileMode(ctx context.Context, c Contents, t codalab.Target) fs.FileMode {
	info, err := c.ContentsInfo(ctx, t, 0)
	if err != nil {
		return 0o644
	}
	return fs.FileMode(info.Perm)&0o777 | 0o400 //nolint:gosec // the server's permission bits, masked
}

func unpack(ctx context.Context, body io.Reader, tmp string, limits tarstream.Limits) error {
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	_, err = tarstream.Unpack(ctx, body, root, limits)
	return errors.Join(err, root.Close())
}

// meter tells, about every 8 MiB, how much went through it.
type meter struct {
	r       io.Reader
	n, said int64
	tell    func(n int64)
}

func (m *meter) Read(p []byte) (int, error) {
	const step = 8 << 20
	n, err := m.r.Read(p)
	m.n += int64(n)
	if m.n-m.said >= step {
		m.said = m.n
		m.tell(m.n)
	}
	return n, err //nolint:wrapcheck // a reader passes its errors on
}
