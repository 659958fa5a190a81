package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// A device token is sent with each password, kept through renewals, and asked for by programs that keep tokens alone.
func TestDeviceTokenIsKeptAndSentWithThePassword(t *testing.T) {
	t.Parallel()
	var sent []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/rest/oauth2/token":
			say(w, `{"data": {}}`)
		case r.FormValue("grant_type") == "refresh_token":
			sent = append(sent, "refresh")
			say(w, `{"access_token": "b", "expires_in": 3600, "token_type": "Bearer", "refresh_token": "r2"}`)
		default:
			device := "none"
			if r.PostForm.Has("device_token") {
				device = "device " + r.FormValue("device_token")
			}
			sent = append(sent, device)
			say(w, `{"access_token": "a", "expires_in": 3600, "token_type": "Bearer", "refresh_token": "r1", "device_token": "d"}`)
		}
	}))
	t.Cleanup(web.Close)
	now := time.Unix(1_800_000_000, 0)
	cache := &memory{}
	call := func(change func(*client.Options)) {
		t.Helper()
		if _, err := (&site{Server: web}).client(t, change).User(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	keeping := func(o *client.Options) { o.Tokens, o.Now = cache, func() time.Time { return now } }
	call(nil)
	call(keeping)
	now = now.Add(time.Hour)
	call(keeping) // by the refresh token
	if cache.token.Device != "d" || cache.token.Access != "b" {
		t.Errorf("kept %+v", cache.token)
	}
	cache.token = client.Token{Device: cache.token.Device} // as after a logout
	call(keeping)
	if diff := cmp.Diff([]string{"none", "device ", "refresh", "device d"}, sent); diff != "" {
		t.Error(diff)
	}
}

// With a wrong clock a program may send a token that has expired, or renew one too early: it costs a call.
func TestWrongClockOfTheClientLocksItNotOut(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"a year back": -365 * 24 * time.Hour, "a year ahead": 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { say(w, `{"data": {}}`) })
			now := time.Unix(1_800_000_000, 0)
			cache := &memory{}
			c := s.client(t, func(o *client.Options) { o.Tokens, o.Now = cache, func() time.Time { return now } })
			call := func() {
				t.Helper()
				if _, err := c.User(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			call()
			now = now.Add(wrong)
			s.grants.Add(1) // the token has expired at the server
			call()
			call()
			if n := s.grants.Load(); n != 3 {
				t.Errorf("%d tokens were given, want 3", n)
			}
		})
	}
}
