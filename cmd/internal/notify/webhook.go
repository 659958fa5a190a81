package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// The tries of a message, and their pauses: each doubles. A chat that is too busy may ask for a longer one.
const (
	tries      = 4
	tryWithin  = 10 * time.Second
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// Webhook is an address that takes messages in the form of Slack, as Mattermost, Rocket.Chat, Zulip and Discord (with
// /slack at the end) do. It is a secret: no error has more of it than its host.
type Webhook struct {
	url  *url.URL
	http *http.Client
}

// NewWebhook reads the address. The transport sends the messages; nil means http.DefaultTransport.
func NewWebhook(address string, transport http.RoundTripper) (*Webhook, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("it is no address of a webhook: want https://HOST/PATH")
	}
	return &Webhook{u, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the host was chosen
	}}, nil
}

// Send sends a text. It tries four times if the host cannot be reached, or is in trouble or too busy. If an answer was
// lost, the text may come twice.
func (w *Webhook) Send(ctx context.Context, text string) error {
	body, err := json.Marshal(map[string]string{"text": escape(text)})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	for n := 1; ; n++ {
		again, wait, err := w.post(ctx, body)
		if err == nil || !again || n == tries {
			return err
		}
		if pause.For(ctx, max(wait, backoff.Spread(backoff.After(n, firstPause, mostPause), nil))) != nil {
			return err
		}
	}
}

// escape keeps names and messages from being links, or mentions of everybody in a channel
// (https://docs.slack.dev/messaging/formatting-message-text/#escaping).
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// reason is a word by which Slack refuses a message, such as "no_service". Other answers are not shown: they may repeat
// the address.
var reason = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// post sends a message once. again reports whether another try may succeed, after wait at the earliest.
func (w *Webhook) post(ctx context.Context, body []byte) (again bool, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return false, 0, errors.New("it is no address of a webhook")
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(request)
	if err != nil {
		if named, ok := errors.AsType[*url.Error](err); ok {
			err = named.Err // the other has the address
		}
		return true, 0, fmt.Errorf("cannot reach %s: %w", w.url.Host, err)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // only for its reason
	_ = answer.Body.Close()                                   // nothing depends on the rest
	if answer.StatusCode/100 == 2 {
		return false, 0, nil
	}
	why := ""
	if word := strings.TrimSpace(string(text)); reason.MatchString(word) {
		why = " (" + word + ")"
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // 0 for a date, which no chat sends
	return answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500,
		min(time.Duration(max(seconds, 0))*time.Second, mostPause),
		fmt.Errorf("%s answers %d %s%s", w.url.Host, answer.StatusCode, http.StatusText(answer.StatusCode), why)
}
