package azurebatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Error is a request to Azure that failed. Its text has no signature and no key.
type Error struct {
	// What names the request, Account the account.
	What, Account string
	// Status, Code and Message are the service's answer; zero if there was none.
	Status        int
	Code, Message string
	// Err is the cause if there was no answer.
	Err error

	sent bool          // the request may have reached the service
	held bool          // the request was not sent, because of a pause
	skew time.Duration // by how much this machine's clock is behind the service's
}

// Errors of the service that callers branch on. errors.Is finds them by the service's code.
var (
	ErrTaskExists   = &Error{Code: "TaskExists"}
	ErrTaskNotFound = &Error{Code: "TaskNotFound"}
	ErrCompleted    = &Error{Code: "TaskCompleted"}
	// ErrNoFile means that the node has no such file, or is gone.
	ErrNoFile = errors.New("the node has no such file")

	errNoRange = errors.New("there are no more bytes")
)

// noFileCodes are the codes of ErrNoFile ("Batch Status and Error Codes").
var noFileCodes = []string{ //nolint:gochecknoglobals // a constant
	"FileNotFound", "TaskFilesUnavailable", "TaskFilesCleanedup", "NodeNotFound", "NodeStateUnusable", "NodeNotReady", "TaskNotFound",
	"OperationInvalidForCurrentState",
}

// Is compares the service's code with that of another Error, and knows ErrNoFile.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	switch {
	case ok:
		return e.Code != "" && e.Code == other.Code
	case target == ErrNoFile:
		return slices.Contains(noFileCodes, e.Code)
	case target == errNoRange:
		return e.Status == http.StatusRequestedRangeNotSatisfiable
	}
	return false
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same request may succeed later without a change by a person.
func (e *Error) Transient() bool {
	switch {
	case e.Status == 0:
		return e.sent
	case slices.Contains(waitedFor, e.Code):
		return true
	}
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// waitedFor are the codes of states that pass.
var waitedFor = []string{ //nolint:gochecknoglobals // a constant
	"ActiveJobAndScheduleQuotaReached", "PoolQuotaReached", "PoolBeingCreated", "PoolBeingResized", "JobDisabled", "JobNotActive", "JobBeingDisabled",
}

// Uncertain reports whether the service may have carried the request out.
func (e *Error) Uncertain() bool {
	return !e.held && (e.Status == 0 && e.sent || e.Status >= http.StatusInternalServerError)
}

// Error returns one sentence: the request, the service's words, and the remedy.
func (e *Error) Error() string {
	said := e.Message
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded): // of each try
		said = "no answer in time"
	case e.Err != nil:
		said = e.Err.Error()
	case e.Code != "" && said != "":
		said = e.Code + ": " + said
	case said == "":
		said = strings.TrimSpace(fmt.Sprintf("%s %d %s", e.Code, e.Status, http.StatusText(e.Status)))
	}
	text := fmt.Sprintf("%s: Azure Batch: %s", e.What, strings.TrimSuffix(said, "."))
	if do := e.remedy(); do != "" {
		text += "; " + do
	}
	return text
}

// remedy names what a person can do.
func (e *Error) remedy() string {
	switch e.Code {
	case "AuthenticationFailed", "InvalidAuthenticationInfo":
		if e.skew.Abs() > 5*time.Minute {
			direction := "behind"
			if e.skew < 0 {
				direction = "ahead of"
			}
			return fmt.Sprintf("this machine's clock is %s %s Azure's, and Azure accepts 15 minutes: set the clock", e.skew.Abs().Round(time.Minute), direction)
		}
		return fmt.Sprintf("check the key of account %s and its --service-url; an account may also allow Entra alone", e.Account)
	case "InsufficientAccountPermissions", "AuthorizationFailed", "PermissionDenied":
		return "the identity needs the role Azure Batch Job Submitter on account " + e.Account
	case "AccountIsDisabled":
		return "enable account " + e.Account + " in the portal"
	case "JobNotFound":
		return "name a job of account " + e.Account + " with --job-id"
	case "JobCompleted", "JobBeingTerminated", "JobBeingDeleted":
		return "make a new job on the same pool, and name it with --job-id"
	case "JobDisabled", "JobNotActive":
		return "enable the job in the portal: it takes no tasks until then"
	case "ActiveJobAndScheduleQuotaReached", "PoolQuotaReached":
		return "the manager waits; ask Azure for a larger quota, or end old jobs"
	}
	var network interface{ Timeout() bool }
	switch {
	case e.Status == 0 && (isUnreachable(e.Err) || errors.As(e.Err, &network)):
		return "check --service-url and the network"
	case e.Code == "" && e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError:
		return "check --service-url: a Batch account does not answer so"
	}
	return ""
}

// mostError is the longest body of an error that is read.
const mostError = 64 << 10

// refusal returns the error of an answer, and closes its body.
func (c *Client) refusal(what string, answer *http.Response) error {
	defer func() { _ = answer.Body.Close() }() // only read
	body, _ := io.ReadAll(io.LimitReader(answer.Body, mostError))
	e := &Error{What: what, Account: c.account, Status: answer.StatusCode, sent: true}
	var said struct {
		Code    string `json:"code"`
		Message struct {
			Value string `json:"value"`
		} `json:"message"`
		Values []struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"values"`
	}
	if json.Unmarshal(body, &said) == nil {
		e.Code = said.Code
		// The lines after the first name the request for Microsoft's support.
		e.Message, _, _ = strings.Cut(said.Message.Value, "\n")
		for _, v := range said.Values {
			if v.Key == "Reason" || v.Key == "AuthenticationErrorDetail" {
				detail, _, _ := strings.Cut(v.Value, "\n")
				detail, _, _ = strings.Cut(detail, " Server used following string to sign") // the whole request
				e.Message = strings.TrimSuffix(e.Message, ".") + ": " + detail
			}
		}
		e.Message = withoutSignature(e.Message)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		c.pause.ask(e, c.now().Add(time.Duration(seconds)*time.Second))
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		e.skew = date.Sub(c.now())
	}
	return e
}

// signature is the secret part of an address with a SAS.
var signature = regexp.MustCompile(`(?i)\bsig=[^&\s"'<>]+`)

// withoutSignature returns a text of a service without the signatures of addresses in it.
func withoutSignature(text string) string { return signature.ReplaceAllString(text, "sig=…") }

// withoutURL returns a network error without the address, which may have a signature.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
