package fetch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
)

// source is a server in simulated time with one file of a thousand bytes.
type source struct {
	fail error // the answer to every question
	// stop is the number of bytes that arrive before a stream is silent.
	stop  int64
	opens int
}

func (s *source) ContentsInfo(context.Context, codalab.Target, int) (codalab.TargetInfo, error) {
	return codalab.TargetInfo{Type: codalab.TargetFile, Size: 1000, Perm: 0o644}, s.fail
}

func (s *source) OpenContents(ctx context.Context, _ codalab.Target, r *client.Range) (*client.Contents, error) {
	s.opens++
	first, last := int64(0), int64(1000)
	if r != nil {
		first, last = r.Offset, r.Offset+r.Length
	}
	body := io.MultiReader(bytes.NewReader(make([]byte, min(last-first, s.stop))), silent(ctx.Done()))
	return &client.Contents{ReadCloser: io.NopCloser(body), Type: codalab.TargetFile, Size: 1000}, nil
}

// silent never sends anything.
type silent <-chan struct{}

func (s silent) Read([]byte) (int, error) {
	<-s
	return 0, context.Canceled
}

func TestServerThatIsDownIsAskedForAboutAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := get(t.Context(), &source{fail: &codalab.Error{Message: "cannot reach the server"}}, filepath.Join(t.TempDir(), "content"), "")
		var serverErr *codalab.Error
		if took := time.Since(began); !errors.As(err, &serverErr) || took < 50*time.Second || took > 80*time.Second {
			t.Errorf("error %v after %v", err, took)
		}
	})
}

func TestRefusalIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := get(t.Context(), &source{fail: &codalab.Error{Status: 404}}, filepath.Join(t.TempDir(), "content"), "")
		if took := time.Since(began); err == nil || took > 0 {
			t.Errorf("error %v after %v", err, took)
		}
	})
}

func TestServerThatFallsSilentIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{stop: 600}
		began := time.Now()
		err := get(t.Context(), s, filepath.Join(t.TempDir(), "content"), "")
		if took := time.Since(began); !errors.Is(err, fetch.ErrBroken) || took > time.Hour || s.opens < 3 {
			t.Errorf("error %v after %v and %d streams", err, took, s.opens)
		}
	})
}

// A slow reader does not make the server silent.
func TestTimeThatIsSpentWaitingIsNotTheServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{stop: 1000}
		f := fetch.Fetch{From: eof{s}, Reader: func(_ context.Context, r io.Reader) io.Reader { return slow{r} }}
		if err := f.To(t.Context(), filepath.Join(t.TempDir(), "content")); err != nil || s.opens != 1 {
			t.Errorf("error %v after %d streams", err, s.opens)
		}
	})
}

// eof ends streams at the end of the file.
type eof struct{ *source }

func (e eof) OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error) {
	c, err := e.source.OpenContents(ctx, t, r)
	c.ReadCloser = io.NopCloser(io.LimitReader(c.ReadCloser, 1000))
	return c, err
}

type slow struct{ io.Reader }

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(time.Hour)
	return s.Reader.Read(b)
}
