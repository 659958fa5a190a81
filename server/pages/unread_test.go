package pages

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestUnreadFilesHaveASentence(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"It cannot be read now: there was no answer in time.": fmt.Errorf("read: %w", &codalab.Error{Message: "cannot reach the server at http://cl-server.invalid", Err: context.DeadlineExceeded}),
		"It cannot be read now: The worker is away.":          &codalab.Error{Status: 404, Message: "The worker is away."},
		"It cannot be read now.":                              errors.New("a bug"),
	} {
		if got := unread(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
