package awsbatch

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http"
)

// Error is a failed request to AWS.
type Error struct {
	// Text is one sentence: the failure, AWS's own words, and the remedy if there is one.
	Text                 string
	transient, uncertain bool
	err                  error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Transient reports whether the same request may succeed later.
func (e *Error) Transient() bool { return e.transient }

// Uncertain reports whether the request may have had an effect.
func (e *Error) Uncertain() bool { return e.uncertain }

// failure returns the error of a request, which was to do something.
func (b *Backend) failure(do string, err error) *Error {
	said, remedy := b.words(err)
	text := do + ": " + said
	if remedy != "" { // AWS ends some of its sentences with a dot
		text = strings.TrimSuffix(text, ".") + "; " + remedy
	}
	return &Error{Text: text, transient: isTransient(err), uncertain: mayHaveWorked(err), err: err}
}

// words returns what AWS said, and the remedy if one is known.
func (b *Backend) words(err error) (said, remedy string) {
	var api smithy.APIError
	var lookup *net.DNSError
	var sent *http.RequestSendError
	switch {
	case errors.As(err, &api):
		said = api.ErrorCode()
		if message := strings.TrimSpace(api.ErrorMessage()); message != "" {
			said += ": " + message
		}
		return said, b.remedy(api)
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "there is no host " + lookup.Name, fmt.Sprintf("check --region %s, and this machine's network", b.Region)
	case errors.As(err, &sent):
		return "AWS does not answer: " + sent.Err.Error(), ""
	case strings.Contains(err.Error(), "failed to refresh cached credentials"), strings.Contains(err.Error(), "get identity"):
		return "no credentials of AWS work here: " + innermost(err), "run aws configure or aws sso login, set AWS_PROFILE, or give this machine a role"
	}
	return innermost(err), ""
}

// innermost returns the text of the cause at the bottom of an error.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// remedy returns the remedy for an error that AWS has answered with; empty if none is known.
func (b *Backend) remedy(api smithy.APIError) string {
	message := strings.ToLower(api.ErrorMessage())
	switch api.ErrorCode() {
	case "ExpiredToken", "ExpiredTokenException":
		return "the session of AWS has ended: log in again (aws sso login), or renew the keys"
	case "UnrecognizedClientException", "InvalidClientTokenId":
		return "AWS does not know this access key: check AWS_PROFILE and the keys"
	case "InvalidSignatureException", "SignatureDoesNotMatch":
		if strings.Contains(message, "expired") || strings.Contains(message, "not yet current") {
			return "set this machine's clock"
		}
		return "check the secret access key"
	case "RequestTimeTooSkewed", "RequestExpired":
		return "set this machine's clock"
	case "AccessDeniedException", "AccessDenied":
		return "docs/aws-batch.md lists the permissions that a manager needs"
	case "ClientException":
		switch {
		case strings.Contains(message, "queue") && (strings.Contains(message, "not exist") || strings.Contains(message, "not found")):
			return fmt.Sprintf("check --job-queue and --region %s", b.Region)
		case strings.Contains(message, "disabled"):
			return "enable the job queue"
		}
	}
	return ""
}

// isTransient reports whether the SDK would send a request again that has failed so.
func isTransient(err error) bool {
	return retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}

// mayHaveWorked reports whether a failed request may have had its effect: it was sent, and AWS has not refused it.
func mayHaveWorked(err error) bool {
	if answer, ok := errors.AsType[*http.ResponseError](err); ok && answer.HTTPStatusCode() > 0 {
		return answer.HTTPStatusCode() < 400 || answer.HTTPStatusCode() >= 500
	}
	if _, ok := errors.AsType[*http.RequestSendError](err); !ok {
		return false
	}
	dial, ok := errors.AsType[*net.OpError](err)
	return !ok || dial.Op != "dial"
}
