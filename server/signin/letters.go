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

// letter writes mails about accounts. It is called after the answer to the request, whose time so does not tell which users
// exist. Letters wait in memory, because the store has only hashes of the codes in them: after a restart people ask again.
type letter func(context.Context) ([]mail.Mail, error)

// unsent is a mail that is tried again.
type unsent struct {
	mail.Mail
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

// post lets a letter be sent, unless too many wait. It calls prepare before, which may store what the letter is about: nothing
// is stored for a letter that cannot wait.
func (s *SignIns) post(ctx context.Context, prepare func(context.Context) error, l letter) error {
	select {
	case s.places <- struct{}{}:
	default:
		return rest.Refuse(http.StatusServiceUnavailable, "Too many mails wait to be sent. Try again later.")
	}
	if err := prepare(ctx); err != nil {
		<-s.places
		return err
	}
	s.letters <- l // there is room for a letter of each place
	return nil
}

// RunMails sends letters until ctx ends, and returns its error. New letters do not wait for those that are tried again.
func (s *SignIns) RunMails(ctx context.Context) error {
	due := time.NewTicker(againEvery)
	defer due.Stop()
	return s.runMails(ctx, due.C)
}

// runMails is RunMails. due tells when letters are tried again.
func (s *SignIns) runMails(ctx context.Context, due <-chan time.Time) error {
	again := make(chan unsent, mostLetters)
	g, within := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			select {
			case <-within.Done():
				return within.Err()
			case l := <-s.letters:
				<-s.places
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
func (s *SignIns) deliver(ctx context.Context, l letter, again chan<- unsent) {
	mails, err := l(ctx)
	failures.Log(ctx, s.config.Log, "write mails about accounts", err)
	for _, m := range mails {
		s.try(ctx, unsent{Mail: m}, again)
	}
}

// deliverAgain tries once what waits in again.
func (s *SignIns) deliverAgain(ctx context.Context, again chan unsent) {
	for range len(again) {
		s.try(ctx, <-again, again)
	}
}

// try sends a mail. If it is to be tried again, it goes to again.
func (s *SignIns) try(ctx context.Context, m unsent, again chan<- unsent) {
	err := s.config.Mail.Send(ctx, m.Mail)
	if err == nil || ctx.Err() != nil {
		return
	}
	m.tries++
	attributes := []slog.Attr{slog.Int("tries", m.tries), slog.String("error", err.Error())}
	if !mail.Permanent(err) && m.tries < mostTries {
		select {
		case again <- m:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "cannot send a mail about an account, and try again", attributes...)
			return
		default: // too many wait
		}
	}
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, "gave up a mail about an account", attributes...)
}
