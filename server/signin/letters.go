package signin

import (
	"context"
	"log/slog"
	"net/http"
	netmail "net/mail"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/guesses"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// mostLetters bounds the new letters that wait, and those that are to be tried again.
	mostLetters = 1000
	// A letter that cannot be sent is tried again each againEvery, mostTries times in all.
	againEvery = time.Minute
	mostTries  = 10
)

// letter is a mail about an account. Letters wait in memory, because the store has only hashes of the codes in them: after a
// restart people ask again.
type letter struct {
	// write makes the mails after the answer to the request, so that the answer's time does not tell which users exist. It is nil
	// once mail is set.
	write func(context.Context) ([]mail.Mail, error)
	mail  mail.Mail
	tries int
}

// Mails reports whether the server mails people about their accounts.
func (s *SignIns) Mails() bool { return s.config.Mail.Server != "" && s.config.PublicURL != "" }

// link is the address of a page below /rest in a mail. It never has the Host header of a request, which its sender chooses.
func (s *SignIns) link(path string) string { return s.config.PublicURL + "/rest" + path }

// EmailPage is the address of the page for another e-mail address; empty where the operator alone sets addresses.
func (s *SignIns) EmailPage() string {
	if !s.Mails() {
		return ""
	}
	return s.link("/account/changeemail")
}

// isAddress reports whether a text is an e-mail address alone. Only ASCII: databases fold the case of other letters differently.
func isAddress(text string) bool {
	const longest = 254 // RFC 5321
	a, err := netmail.ParseAddress(text)
	return err == nil && a.Address == text && len(text) <= longest && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// mayMail refuses a request for a mail to a recipient after too many from its network or to the recipient.
func (s *SignIns) mayMail(network, recipient string) error {
	wait := s.mailed.Try(guesses.Attempt{Mail: true, Network: network, Name: strings.ToLower(recipient)}, s.config.Now())
	if wait == 0 {
		return nil
	}
	wait = wait.Truncate(time.Second) + time.Second
	return &rest.RefusalError{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: "Too many mails. " + tryAgain(wait)}
}

func (s *SignIns) network(r *http.Request) string { return clientnet.Of(s.config.Address(r)) }

// post lets a letter be sent.
func (s *SignIns) post(write func(context.Context) ([]mail.Mail, error)) error {
	select {
	case s.letters <- letter{write: write}:
		return nil
	default:
		return rest.Refuse(http.StatusServiceUnavailable, "Too many mails wait to be sent. Try again later.")
	}
}

// RunMails sends letters until ctx ends, and returns its error. New letters do not wait for those that are tried again.
func (s *SignIns) RunMails(ctx context.Context) error {
	due := time.NewTicker(againEvery)
	defer due.Stop()
	return s.runMails(ctx, due.C)
}

// runMails is RunMails. due tells when letters are tried again.
func (s *SignIns) runMails(ctx context.Context, due <-chan time.Time) error {
	again := make(chan letter, mostLetters)
	g, within := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			select {
			case <-within.Done():
				return within.Err()
			case l := <-s.letters:
				s.deliver(within, l, again)
			}
		}
	})
	g.Go(func() error {
		for {
			select {
			case <-within.Done():
				return within.Err()
			case <-due:
				s.deliverAgain(within, again)
			}
		}
	})
	return g.Wait()
}

// deliver writes and sends the mails of a letter. What is to be tried again goes to again.
func (s *SignIns) deliver(ctx context.Context, l letter, again chan<- letter) {
	if l.write == nil {
		s.try(ctx, l, again)
		return
	}
	mails, err := l.write(ctx)
	failures.Log(ctx, s.config.Log, "write mails about accounts", err)
	for _, m := range mails {
		s.try(ctx, letter{mail: m}, again)
	}
}

// deliverAgain tries once what waits in again.
func (s *SignIns) deliverAgain(ctx context.Context, again chan letter) {
	for range len(again) {
		s.deliver(ctx, <-again, again)
	}
}

func (s *SignIns) try(ctx context.Context, l letter, again chan<- letter) {
	err := s.config.Mail.Send(ctx, l.mail)
	if err == nil || ctx.Err() != nil {
		return
	}
	l.tries++
	attributes := []slog.Attr{slog.Int("tries", l.tries), slog.String("error", err.Error())}
	if !mail.Permanent(err) && l.tries < mostTries {
		select {
		case again <- l:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "cannot send a mail about an account, and try again", attributes...)
			return
		default: // too many wait
		}
	}
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, "gave up a mail about an account", attributes...)
}
