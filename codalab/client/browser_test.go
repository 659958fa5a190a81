package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// roundTrip answers requests without a network.
type roundTrip func(r *http.Request) *http.Response

// RoundTrip answers.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestSlowDownMakesEachLaterPauseLonger: RFC 8628, section 3.5, adds 5 seconds to this and all later pauses.
func TestSlowDownMakesEachLaterPauseLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pending, slow = `{"error": "authorization_pending"}`, `{"error": "slow_down"}`
		answers := []string{pending, slow, pending, slow, slow, pending, ""}
		var pauses []time.Duration
		last := time.Now()
		server := roundTrip(func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			if r.URL.Path == "/rest/oauth2/device_authorization" {
				_, _ = io.WriteString(w, `{"device_code": "long", "user_code": "BBBB-CCCC", "verification_uri": "http://s/rest/sso", "expires_in": 600, "interval": 5}`)
				return w.Result()
			}
			pauses = append(pauses, time.Since(last))
			last = time.Now()
			if answer := answers[len(pauses)-1]; answer != "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, answer)
				return w.Result()
			}
			_, _ = io.WriteString(w, `{"access_token": "a", "expires_in": 3600, "token_type": "Bearer"}`)
			return w.Result()
		})
		api, err := client.New("http://s", client.Options{
			ClientID: client.CommandClient, HTTP: &http.Client{Transport: server},
			Credentials: func(context.Context) (string, string, error) { return "", "", errors.New("no password is used") },
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := api.SignInByBrowser(t.Context(), func(codalab.DeviceAnswer) {}); err != nil || got.Access != "a" {
			t.Fatalf("%+v, %v", got, err)
		}
		const s = time.Second
		if diff := cmp.Diff([]time.Duration{5 * s, 5 * s, 10 * s, 10 * s, 15 * s, 20 * s, 20 * s}, pauses); diff != "" {
			t.Error(diff)
		}
	})
}
