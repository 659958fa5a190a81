package signin

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/smtptest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
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
	again := make(chan unsent, 1)
	s.deliver(t.Context(), write, again)
	if len(again) != 1 {
		t.Fatalf("%d letters are tried again", len(again))
	}
	ann := <-again
	again <- ann
	s.try(t.Context(), ann, again) // there is no room for it
	post.Refuse(nil)
	s.deliverAgain(t.Context(), again)
	if len(again) > 0 || ann.To != "ann@example.org" || written != 1 {
		t.Errorf("%+v, written %d times, %d letters are tried again", ann, written, len(again))
	}
	if m := post.Await(1); m.Header.Get("Message-Id") != "<1@example.org>" || len(post.Mails()) != 1 {
		t.Errorf("%+v", post.Mails())
	}
	post.Stop()
	tries := 0
	for again <- ann; len(again) > 0; tries++ {
		s.deliverAgain(t.Context(), again)
	}
	if tries != mostTries-1 {
		t.Errorf("%d tries", tries+1)
	}
}

// A server that is slow with a letter that is tried again holds no new one.
func TestNewLetterDoesNotWaitForThoseThatAreTriedAgain(t *testing.T) {
	t.Parallel()
	post := smtptest.Start(t, smtptest.Options{})
	s := New(Config{Log: slog.New(slog.DiscardHandler), Now: time.Now, Cost: PasswordCost{Passes: 1, KiB: 8}, Mail: mail.Options{Server: post.Address, TLS: mail.None, From: "c@example.org"}})
	letterTo := func(name string) {
		t.Helper()
		m := mail.Mail{To: name + "@example.org", ID: name}
		testenv.Must(t, s.post(t.Context(), func(context.Context) error { return nil }, func(context.Context) ([]mail.Mail, error) { return []mail.Mail{m}, nil }))
	}
	tries, free, due := make(chan string), make(chan struct{}), make(chan time.Time)
	post.Refuse(func(to string) error {
		tries <- to
		return errors.New("later")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := background.Go(func() {
		if err := s.runMails(ctx, due); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	letterTo("ann")
	testenv.Receive(t, "the first try", tries)
	letterTo("bob") // after its try ann's letter is one that is tried again
	testenv.Receive(t, "the other letter's try", tries)
	post.Refuse(func(to string) error {
		if to == "ann@example.org" {
			tries <- to
			<-free
		}
		return nil
	})
	due <- time.Time{}
	testenv.Receive(t, "the second try", tries)
	letterTo("carl")
	if m := post.Await(1); m.To[0] != "carl@example.org" {
		t.Errorf("the first mail is %+v", m)
	}
	close(free)
	post.Await(2)
	cancel()
	testenv.Receive(t, "the end", ended)
}

func TestLettersThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Config{Cost: PasswordCost{Passes: 1, KiB: 8}})
	prepared, failed := 0, errors.New("the database is away")
	for i := range mostLetters + 1 {
		if err := s.post(t.Context(), func(context.Context) error { return failed }, nil); i < mostLetters && !errors.Is(err, failed) { // it leaves its place
			t.Fatalf("letter %d, which cannot be prepared: %v", i, err)
		}
		if err := s.post(t.Context(), func(context.Context) error { prepared++; return nil }, nil); (err != nil) != (i == mostLetters) {
			t.Fatalf("letter %d: %v", i, err)
		}
	}
	if prepared != mostLetters {
		t.Errorf("%d letters were prepared", prepared)
	}
}
