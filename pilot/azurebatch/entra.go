package azurebatch

import (
	"context"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// entra is a login at Entra whose errors are one sentence. Those of azidentity have many lines.
type entra struct{ azcore.TokenCredential }

// GetToken returns a token.
func (e entra) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := e.TokenCredential.GetToken(ctx, o)
	if err != nil && ctx.Err() == nil {
		err = &loginError{err}
	}
	return token, err
}

// loginError is a login that failed: no request was sent to the service.
type loginError struct{ err error }

// attempt is the line of one way to log in, in the errors of azidentity.
var attempt = regexp.MustCompile(`(?m)^\t+(\w+Credential:? .*)$`)

// Error returns the attempts and the remedy.
func (e *loginError) Error() string {
	var tried []string
	for _, match := range attempt.FindAllStringSubmatch(e.err.Error(), -1) {
		tried = append(tried, strings.TrimSuffix(strings.TrimSpace(match[1]), "."))
	}
	if len(tried) == 0 {
		first, _, _ := strings.Cut(e.err.Error(), "\n")
		tried = append(tried, first)
	}
	return "there is no key of the account, and no login at Entra succeeds (" + strings.Join(tried, "; ") +
		"); give a key with --account-key-file, set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or use az login"
}

// Unwrap returns the cause.
func (e *loginError) Unwrap() error { return e.err }

// NonRetriable tells azcore that the same login will not succeed at once.
func (*loginError) NonRetriable() {}
