package client_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The answers are as a CodaLab server's, shortened.
func TestServerTellsItsVersionAndTheUsersGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/rest/user":
			say(w, `{"data": {"type": "users", "id": "0x1", "attributes": {"user_name": "ann"}}, "meta": {"version": "1.7.3"}}`)
		case "/rest/groups":
			say(w, `{"data": [{"type": "groups", "id": "0x2", "attributes": {"name": "nlp", "user_defined": true}}, {"type": "groups", "id": "0x3", "attributes": {"name": "public"}}], "meta": {"version": "1.7.3"}}`)
		default:
			t.Errorf("%s was asked for", r.URL)
		}
	})
	c := s.client(t, nil)
	if version, err := c.ServerVersion(t.Context()); err != nil || version != "1.7.3" {
		t.Errorf("version %q, %v", version, err)
	}
	if groups, err := c.Groups(t.Context()); err != nil || !cmp.Equal(groups, []string{"nlp", "public"}) {
		t.Errorf("groups %q, %v", groups, err)
	}
}
