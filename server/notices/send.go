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
	mostLook  = time.Minute // also if the clock jumped during the look
	// forgetEvery is the least time between two removals of old notices, because each is a write.
	forgetEvery = time.Hour
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
		took, err := s.pass(ctx)
		failures.Log(ctx, s.config.Log, "send mails about bundles", err)
		more, again := s.config.Store.AnyNotice(ctx)
		failures.Log(ctx, s.config.Log, "find wishes for mails", again)
		var due <-chan time.Time
		if more || err != nil || again != nil {
			due = time.NewTimer(min(max(lookEvery, lookShare*took), mostLook)).C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.made:
		case <-due:
		}
	}
}

// pass sends the mails that are due. It returns the time that the look for them took, without the mails'.
func (s *Notices) pass(ctx context.Context) (took time.Duration, err error) {
	now := s.config.Now()
	if now.Sub(s.forgotten) > forgetEvery {
		if err := s.config.Store.ForgetNotices(ctx, now.Add(-keptFor)); err != nil {
			return 0, err
		}
		s.forgotten = now
	}
	due, err := s.config.Store.DueNotices(ctx, now)
	took = s.config.Now().Sub(now)
	if err != nil {
		return took, err
	}
	for _, n := range due {
		if err := s.settle(ctx, n); err != nil {
			return took, err
		}
	}
	return took, nil
}

// settle sends the mail of a notice, and notes what became of it. It fails if the store or ctx does.
func (s *Notices) settle(ctx context.Context, n store.Notice) error {
	if tried, ok := s.unnoted[n.ID]; ok {
		return s.note(ctx, tried)
	}
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
		return s.note(ctx, n)
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
	return s.note(ctx, n)
}

// note writes what became of a try, also if ctx has ended. Until the store takes it, no other try is made: each may be a
// mail.
func (s *Notices) note(ctx context.Context, n store.Notice) error {
	s.unnoted[n.ID] = n
	err := s.config.Store.NoteNotice(context.WithoutCancel(ctx), n)
	if err == nil {
		delete(s.unnoted, n.ID)
	}
	return err
}

// compose writes the mail. It names bundles that the user may read now.
func (s *Notices) compose(ctx context.Context, u store.User, n store.Notice) (mail.Mail, error) {
	uuids, err := s.config.Store.NoticeBundles(ctx, n.ID)
	if err != nil {
		return mail.Mail{}, err
	}
	found, err := s.config.Store.Bundles(ctx, uuids, "name")
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
	readable = inOrder(readable)
	whys, err := s.reasons(ctx, readable[:min(len(readable), mostNamed)])
	if err != nil {
		return mail.Mail{}, err
	}
	subject, text := words(readable, whys, n.Bundles)
	text += fmt.Sprintf("\nYou asked for this mail by cl wait --notify mail on %s.\n", n.Made.UTC().Format("2006-01-02 15:04 UTC"))
	return mail.Mail{To: u.Email, Subject: "CodaLab: " + subject, Text: text, ID: n.ID, At: s.config.Now()}, nil
}

// reasons returns the failure messages of bundles by uuid.
func (s *Notices) reasons(ctx context.Context, bundles []store.Bundle) (map[string]string, error) {
	uuids := make([]string, 0, len(bundles))
	for _, b := range bundles {
		uuids = append(uuids, b.UUID)
	}
	found, err := s.config.Store.Bundles(ctx, uuids, "failure_message")
	whys := make(map[string]string, len(found))
	for uuid, b := range found {
		whys[uuid] = b.Metadata.String("failure_message")
	}
	return whys, err
}
