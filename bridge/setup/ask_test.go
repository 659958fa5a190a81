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
	answered := make(chan struct{})
	defer close(answered)
	_, err := typed(ctx, func() (string, error) {
		leave()
		<-answered
		return "too late", nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
