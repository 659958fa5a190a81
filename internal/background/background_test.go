package background_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

func TestChannelIsClosedWhenTheFunctionHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finish, returned := make(chan struct{}), false
		ended := background.Go(func() {
			<-finish
			returned = true
		})
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the channel is closed before the function has returned")
		default:
		}
		close(finish)
		<-ended
		if !returned {
			t.Error("the function has not returned")
		}
	})
}

func TestCallEndsWithItsFunctionOrItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		if got, err := background.Call(t.Context(), func() (int, error) { return 7, failed }); got != 7 || !errors.Is(err, failed) {
			t.Errorf("got %d, %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		finish := make(chan struct{})
		var got int
		var err error
		ended := background.Go(func() {
			got, err = background.Call(ctx, func() (int, error) {
				<-finish
				return 7, nil
			})
		})
		synctest.Wait()
		cancel()
		<-ended
		if got != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context, Call returned %d, %v", got, err)
		}
		close(finish) // the function returns before the bubble ends
	})
}
