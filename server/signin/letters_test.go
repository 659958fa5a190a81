package signin

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/server/mail"
)

func TestLetterIsTriedAgainUntilTheServerTakesOrRefusesIt(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{})
	s := New(Config{Log: slog.New(slog.DiscardHandler), Now: time.Now, Cost: PasswordCost{Passes: 1, KiB: 8}, Mail: mail.Options{Server: post.Address, TLS: mail.None, From: "c@example.org"}})
	written := 0
	write := func(context.Context) ([]mail.Mail, error) {
		written++
		return []mail.Mail{{To: "ann@example.org", ID: "1"}, {To: "bob@example.org", ID: "2"}}, nil
	}
	post.Refuse(func(to string) error {
		if to == "bob@example.org" {
			return &smtp.SMTPError{Code: 550, Message: "nobody"}
		}
		return errors.New("later")
	})
	again := s.deliver(t.Context(), letter{write: write})
	if len(again) != 1 || again[0].mail.To != "ann@example.org" {
		t.Fatalf("%+v", again)
	}
	post.Refuse(nil)
	if more := s.deliver(t.Context(), again[0]); len(more) > 0 || written != 1 {
		t.Errorf("%+v, written %d times", more, written)
	}
	if m := post.Await(1); m.Header.Get("Message-Id") != "<1@example.org>" || len(post.Mails()) != 1 {
		t.Errorf("%+v", post.Mails())
	}
	post.Stop()
	tries := 0
	for more := again; len(more) > 0; tries++ {
		more = s.deliver(t.Context(), more[0])
	}
	if tries != mostTries-1 {
		t.Errorf("%d tries", tries+1)
	}
}

func TestLettersThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Config{Cost: PasswordCost{Passes: 1, KiB: 8}})
	for i := range mostLetters + 1 {
		if err := s.post(nil); (err != nil) != (i == mostLetters) {
			t.Fatalf("letter %d: %v", i, err)
		}
	}
}
