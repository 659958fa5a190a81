package cachetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cache"
)

// checkAftermath checks that the storm has left nothing that a person would have to clean up.
func (s *storm) checkAftermath() {
	c, err := s.open(s.options)
	if err != nil {
		s.broken("after the storm: open: %v", err)
		return
	}
	s.until("pins are back to zero", func(ctx context.Context) error {
		_, trimErr := c.Trim(ctx, cache.TrimOptions{})
		pins, err := c.Pins()
		if err == nil && len(pins) > 0 {
			err = fmt.Errorf("%d pins, one is %+v", len(pins), pins[0])
		}
		return errors.Join(trimErr, err)
	})
	s.until("what is there is right", func(ctx context.Context) error {
		var damaged []error
		err := c.Verify(ctx, func(e cache.Entry, err error) {
			if err != nil {
				damaged = append(damaged, fmt.Errorf("%s: %w", e.Key, err))
			}
		})
		return errors.Join(append(damaged, err)...)
	})
	var all errgroup.Group
	all.SetLimit(8)
	for _, content := range s.contents {
		all.Go(func() error {
			s.until("every key can be had", func(ctx context.Context) error { return s.getAndCompare(ctx, c, content) })
			return nil
		})
	}
	_ = all.Wait() // failures are in s.wrong
	s.checkEmptied()
}

// getAndCompare gets a content and compares it.
func (s *storm) getAndCompare(ctx context.Context, c *cache.Cache, content content) error {
	h := cache.Holder(fmt.Sprint("after-", content.n))
	path, err := c.Get(ctx, cache.Want{Key: content.key(), Holder: h, Size: content.size}, func(_ context.Context, tmp string) error {
		_, err := content.make(tmp, fmt.Sprintf("after.%d", content.n), func() error { return nil })
		return err
	})
	if err == nil {
		_, _, err = content.check(path)
	}
	if err = errors.Join(err, c.Unpin(ctx, h)); err != nil {
		return fmt.Errorf("get %s: %w", content.key(), err)
	}
	return nil
}

// until repeats try, and records a broken promise if it does not succeed in time.
func (s *storm) until(what string, try func(context.Context) error) {
	if err := within(s.Context(), s.limit+4*(s.options.Term+max(s.options.Settle, 0)), try); err != nil {
		s.broken("after the storm: %s: %v", what, err)
	}
}

// open opens a cache that treats all holders as over.
func (s *storm) open(o cache.Options) (*cache.Cache, error) {
	o.Host = hostName(0)
	o.Over = everyone
	return cache.Open(filepath.Join(s.Hosts[0], s.name), o)
}

// checkEmptied trims everything. No file may remain, neither of contents nor of the cache itself,
// because such files would accumulate over years.
func (s *storm) checkEmptied() {
	o := s.options
	o.Term, o.Grace = 10*time.Millisecond, 25*time.Millisecond // all processes have ended
	c, err := s.open(o)
	if err != nil {
		s.broken("after the storm: open: %v", err)
		return
	}
	s.until("the cache can be emptied", func(ctx context.Context) error {
		if _, err := c.Trim(ctx, cache.TrimOptions{All: true}); err != nil {
			return err
		}
		if left := names(filepath.Join(s.server(), s.name)); len(left) > 0 {
			return fmt.Errorf("there are %d files still: %v", len(left), left[:min(10, len(left))])
		}
		return nil
	})
}

// everyone reports all holders as over.
func everyone(_ context.Context, holders []cache.Holder) (map[cache.Holder]bool, error) {
	over := map[cache.Holder]bool{}
	for _, h := range holders {
		over[h] = true
	}
	return over, nil
}
