package signin

import (
	"context"
	"log/slog"
	"net/http"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/guesses"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// mostLetters bounds the letters that wait, and those that are tried again.
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

// RunMails sends letters until ctx ends, and returns its error.
func (s *SignIns) RunMails(ctx context.Context) error {
	again, due := []letter{}, time.NewTicker(againEvery)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l := <-s.letters:
			again = append(again, s.deliver(ctx, l)...)
		case <-due.C:
			waiting := again
			again = nil
			for _, l := range waiting {
				again = append(again, s.deliver(ctx, l)...)
			}
		}
		again = again[max(0, len(again)-mostLetters):]
	}
}

// deliver sends a letter. It returns what is to be tried again.
func (s *SignIns) deliver(ctx context.Context, l letter) (again []letter) {
	if l.write == nil {
		return s.try(ctx, l)
	}
	mails, err := l.write(ctx)
	failures.Log(ctx, s.config.Log, "write mails about accounts", err)
	for _, m := range mails {
		again = append(again, s.try(ctx, letter{mail: m})...)
	}
	return again
}

func (s *SignIns) try(ctx context.Context, l letter) (again []letter) {
	err := s.config.Mail.Send(ctx, l.mail)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	l.tries++
	s.config.Log.LogAttrs(ctx, slog.LevelWarn, "cannot send a mail about an account", slog.Int("tries", l.tries), slog.String("error", err.Error()))
	if mail.Permanent(err) || l.tries >= mostTries {
		return nil
	}
	return []letter{l}
}
