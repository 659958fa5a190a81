package notices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// The server looks for ended bundles every lookEvery, as long as there are notices, or more seldom if a look takes long.
const (
	lookEvery = time.Second
	lookShare = 20
)

// The tries of a mail: the pauses double from firstPause to mostPause, and so take about three days.
const (
	firstPause = time.Minute
	mostPause  = time.Hour
	mostTries  = 77
)

// keptFor is the time for which a notice stays that is done.
const keptFor = 30 * 24 * time.Hour

// Run sends mails until ctx ends, and returns its error.
func (s *Notices) Run(ctx context.Context) error {
	if s.config.Mail.Server == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		begun := s.config.Now()
		err := s.Pass(ctx)
		failures.Log(ctx, s.config.Log, "send mails about bundles", err)
		more, again := s.config.Store.AnyNotice(ctx)
		failures.Log(ctx, s.config.Log, "find wishes for mails", again)
		var due <-chan time.Time
		if more || err != nil || again != nil {
			due = time.NewTimer(max(lookEvery, lookShare*s.config.Now().Sub(begun))).C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.made:
		case <-due:
		}
	}
}

// Pass sends the mails that are due.
func (s *Notices) Pass(ctx context.Context) error {
	now := s.config.Now()
	if err := s.config.Store.ForgetNotices(ctx, now.Add(-keptFor)); err != nil {
		return err
	}
	due, err := s.config.Store.DueNotices(ctx, now)
	if err != nil {
		return err
	}
	for _, n := range due {
		if err := s.settle(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// settle sends the mail of a notice, and notes what became of it. It fails if the store or ctx does.
func (s *Notices) settle(ctx context.Context, n store.Notice) error {
	u, err := s.config.Store.User(ctx, n.UserID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // removed, with the notice
	}
	if err != nil {
		return err
	}
	m, err := s.compose(ctx, u, n)
	if err != nil {
		return err
	}
	failure := s.config.Mail.Send(ctx, m)
	if ctx.Err() != nil && failure != nil {
		return ctx.Err()
	}
	now := s.config.Now()
	attributes := []slog.Attr{slog.String("user", u.Name), slog.String("notice", n.ID), slog.Int("bundles", n.Bundles)}
	if failure == nil {
		n.Done, n.Problem = store.Time{Time: now}, ""
		s.config.Log.LogAttrs(ctx, slog.LevelInfo, "sent a mail about bundles", attributes...)
		return s.config.Store.NoteNotice(ctx, n)
	}
	n.Tries, n.Problem = n.Tries+1, failure.Error()
	n.NextTry = store.Time{Time: now.Add(backoff.After(n.Tries, firstPause, mostPause))}
	attributes = append(attributes, slog.Int("tries", n.Tries), slog.String("error", n.Problem))
	if mail.Permanent(failure) || n.Tries >= mostTries {
		n.Done = store.Time{Time: now}
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "gave up a mail about bundles", attributes...)
	} else {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "cannot send a mail about bundles, and try again", attributes...)
	}
	return s.config.Store.NoteNotice(ctx, n)
}

// compose writes the mail. It names bundles that the user may read now.
func (s *Notices) compose(ctx context.Context, u store.User, n store.Notice) (mail.Mail, error) {
	uuids, err := s.config.Store.NoticeBundles(ctx, n.ID)
	if err != nil {
		return mail.Mail{}, err
	}
	found, err := s.config.Store.Bundles(ctx, uuids, "name", "failure_message")
	if err != nil {
		return mail.Mail{}, err
	}
	var list []store.Bundle
	for _, uuid := range uuids {
		if b, ok := found[uuid]; ok {
			list = append(list, b)
		}
	}
	have, err := s.config.Access.BundlePermissions(ctx, u, list...)
	if err != nil {
		return mail.Mail{}, err
	}
	var readable []store.Bundle
	for _, b := range list {
		if have[b.UUID] >= store.PermissionRead {
			readable = append(readable, b)
		}
	}
	subject, text := words(readable, n.Bundles)
	text += fmt.Sprintf("\nYou asked for this mail by cl wait --notify mail on %s.\n", n.Made.UTC().Format("2006-01-02 15:04 UTC"))
	return mail.Mail{To: u.Email, Subject: "CodaLab: " + subject, Text: text, ID: n.ID, At: s.config.Now()}, nil
}
