package images

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// One owner's image whose registry does not answer does not delay other owners' images.
func TestI11QuestionsOfOneOwnerDoNotHoldAnothersUp(t *testing.T) {
	t.Parallel()
	r := newResolver(time.Minute, time.Now)
	r.asking = turns.New(2) // one owner alone has only one
	asked, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	from := source.Source{OpenFile: func(path string) (*os.File, error) {
		if path == "/ann.tar" {
			close(asked)
			<-over
		}
		return nil, errors.New("refused")
	}}
	ask := func(ctx context.Context, owner string) error {
		ref, err := source.ParseReference("docker-archive:/" + owner + ".tar")
		if err == nil {
			_, err = r.query(ctx, owner, question{reference: owner}, ref, from)
		}
		return err
	}
	go ask(t.Context(), "ann") //nolint:errcheck // it hangs until the test ends
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	if err := ask(ctx, "ben"); err != nil {
		t.Error(err)
	}
}
