package client_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestUnreadMessagesAreLoggedUnknownTypesOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		say(w, `[{"type":"dance","uuid":"0x1"},{"type":"dance","uuid":"0x2"},{"type":"read","uuid":"0x3","socket_id":"x"},{"type":"kill","uuid":"0x4"}]`)
	})
	var log bytes.Buffer
	c := s.client(t, func(o *client.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		got, err := c.CheckIn(t.Context(), "w", codalab.CheckIn{})
		if err != nil || len(got.Messages) != 1 || got.Messages[0].UUID != "0x4" || len(got.Unread) != 3 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if n := strings.Count(log.String(), "type=dance"); n != 1 {
		t.Errorf("the unknown type was logged %d times:\n%s", n, &log)
	}
	if n := strings.Count(log.String(), `type=read bundle=0x3 error="decode message: socket_id is \"x\", which is no whole number"`); n != 2 {
		t.Errorf("the unreadable message was logged %d times:\n%s", n, &log)
	}
}
