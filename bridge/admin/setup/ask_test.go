package setup

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestErrorsKeepTheirCause(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&UsageError{io.EOF}, &OutageError{io.EOF}} {
		if !errors.Is(err, io.EOF) {
			t.Errorf("%T hides its cause", err)
		}
	}
}

// A person may leave at any question.
func TestQuestionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	answers, unanswered := io.Pipe()
	defer func() { _ = unanswered.Close() }()
	person := asker{in: answers, out: writerFunc(func(b []byte) (int, error) {
		leave() // once there is the question
		return len(b), nil
	})}
	_, err := person.ask(ctx, "Name", "", "--name")
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
