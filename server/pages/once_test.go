package pages

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// A stranger's forms, which are refused, are not remembered.
func TestOnlyFormsOfUsersAreRemembered(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]int{"": 2, "0x1": 1} {
		p, acted := &Pages{}, 0
		for range 2 {
			v := &visit{ResponseWriter: httptest.NewRecorder(), Request: httptest.NewRequest(http.MethodPost, "/worksheets", nil)}
			v.user.ID = user
			err := p.once(v, url.Values{"once": {"1"}}, func() (answer, error) {
				acted++
				return goTo("/runs"), nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if acted != want || len(p.sent.forms) != 2-want {
			t.Errorf("user %q: acted %d times, remembers %d forms", user, acted, len(p.sent.forms))
		}
	}
}

// Forms of a megabyte take no more memory than there is for all, and the youngest are remembered.
func TestSentFormsAreBoundedInMemory(t *testing.T) {
	t.Parallel()
	var s sentForms
	const size = 1 << 20
	for i := range 2 * mostForms {
		f, first := s.begin(formKey{byte(i), byte(i >> 8)}, size)
		if !first {
			t.Fatalf("form %d was sent before", i)
		}
		s.end(formKey{byte(i), byte(i >> 8)}, f, goTo("/runs"))
	}
	if most := mostMemory / (perByte * size); len(s.forms) != most || len(s.answered) != most || s.memory > mostMemory {
		t.Errorf("%d forms and %d answers of %d bytes are remembered", len(s.forms), len(s.answered), s.memory)
	}
	last := 2*mostForms - 1
	if _, first := s.begin(formKey{byte(last), byte(last >> 8)}, size); first {
		t.Error("the youngest form is forgotten")
	}
}
