package inputs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

func TestFailuresAreTheBundlesOrAnOutageOrNeither(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for name, c := range map[string]struct {
		err           error
		retry, outage bool
	}{
		"no answer":             {&codalab.Error{Message: "cannot reach the server"}, true, true},
		"server in trouble":     {&codalab.Error{Status: 502}, true, true},
		"password was changed":  {&codalab.Error{Status: 401}, true, true},
		"not found":             {&codalab.Error{Status: 404}, false, false},
		"forbidden":             {&codalab.Error{Status: 403}, false, false},
		"connections break off": {fmt.Errorf("%w: EOF", fetch.ErrBroken), true, true},
		"disk is full":          {&pathError{syscall.ENOSPC}, true, true},
		"quota of the disk":     {&pathError{syscall.EDQUOT}, true, true},
		"cache is full":         {fmt.Errorf("get: %w", cache.ErrFull), true, true},
		"sizes differ":          {fetch.ErrDiffers, true, false},
		"broken archive":        {tarstream.ErrFormat, true, false},
		"unsafe archive":        {tarstream.ErrUnsafe, false, false},
		"too large":             {tarstream.ErrTooLarge, false, false},
		"a link":                {fetch.ErrLink, false, false},
		"something else":        {errors.New("something"), true, false},
	} {
		var e *transfer.Error
		if err := downloadError("dependency x", c.err); !errors.As(err, &e) || e.Transient() != c.retry || e.Outage() != c.outage {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

type pathError struct{ errno syscall.Errno }

func (e *pathError) Error() string { return "write x: " + e.errno.Error() }
func (e *pathError) Unwrap() error { return e.errno }

// The members of a cache's group can read only the data that anyone may read on the server, even
// while the server does not answer whether anyone may.
func TestOnlyWhatAnyoneMayReadIsSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		public func(context.Context, string) (bool, error)
		shared bool
	}{
		"public":        {func(context.Context, string) (bool, error) { return true, nil }, true},
		"not public":    {func(context.Context, string) (bool, error) { return false, nil }, false},
		"nobody knows":  {func(context.Context, string) (bool, error) { return true, errors.New("no answer") }, false},
		"nobody to ask": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &directoryServer{bundles: t.TempDir()}
			write(t, server.bundles, map[string]string{run1 + "/d/f": "secret"})
			content, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Group: true})
			must(t, err)
			s := &Dependencies{Contents: server, Cache: content, Public: test.public, AtOnce: 1}
			source, err := stageOne(t, s, codalab.Dependency{ParentUUID: run1, ChildPath: "in"})
			must(t, err)
			info, err := os.Stat(filepath.Dir(source))
			must(t, err)
			if shared := info.Mode().Perm()&0o050 == 0o050; shared != test.shared || info.Mode().Perm()&0o007 != 0 {
				t.Errorf("mode %v, want shared %v", info.Mode(), test.shared)
			}
		})
	}
}

// One owner's questions that the server does not answer delay no other owner.
func TestI11QuestionsOfOneOwnerDoNotHoldAnothersUp(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	d := &Dependencies{AtOnce: 1, Identity: func(ctx context.Context, bundle string) (codalab.Identity, error) {
		if bundle == "ann's" {
			close(asked)
			<-ctx.Done()
		}
		return codalab.Identity{UUID: bundle}, ctx.Err()
	}}
	d.begin()
	d.asking = turns.New(2)                    // one owner alone has only one
	go d.identify(t.Context(), "ann", "ann's") //nolint:errcheck // it hangs until the test ends
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	if _, err := d.identify(ctx, "ben", "ben's"); err != nil {
		t.Error(err)
	}
}
