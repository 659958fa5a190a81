package setup

import (
	"context"
	"errors"
	"testing"
)

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
