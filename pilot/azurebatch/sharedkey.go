package azurebatch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// sharedKey signs requests with a key of the account (Azure Batch: "Authenticate requests to the Azure Batch
// service", Authentication via Shared Key; @azure/batch: BatchSharedKeyCredentials.signRequest).
type sharedKey struct {
	account string
	key     []byte
}

func newSharedKey(account, key string) (*sharedKey, error) {
	bytes, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	if err != nil || len(bytes) == 0 {
		return nil, errors.New("the account key is not one of Azure Batch's: these are in base64, and end in ==")
	}
	return &sharedKey{account: account, key: bytes}, nil
}

// Do signs each try anew, because the service refuses a date that is older than 15 minutes.
func (s *sharedKey) Do(req *policy.Request) (*http.Response, error) {
	r := req.Raw()
	r.Header.Set("ocp-date", time.Now().UTC().Format(http.TimeFormat)) //nolint:forbidigo // the date of a request is now
	mac := hmac.New(sha256.New, s.key)
	_, _ = mac.Write([]byte(s.textToSign(r))) // a hash takes everything
	r.Header.Set("Authorization", "SharedKey "+s.account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return req.Next() //nolint:wrapcheck // one link of the chain of policies
}

// signedHeaders are the standard headers in the signed text, in its order. Date is empty, as there is an ocp-date.
// Content-Length comes after the first two.
var signedHeaders = []string{ //nolint:gochecknoglobals // a constant
	"Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
}

// textToSign returns the text of a request that is signed.
func (s *sharedKey) textToSign(r *http.Request) string {
	lines := []string{r.Method, r.Header.Get("Content-Encoding"), r.Header.Get("Content-Language"), signedLength(r)}
	for _, name := range signedHeaders {
		lines = append(lines, r.Header.Get(name))
	}
	var own []string
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "ocp-") {
			own = append(own, lower+":"+r.Header.Get(name))
		}
	}
	slices.Sort(own)
	lines = append(append(lines, own...), "/"+s.account+r.URL.EscapedPath())
	var query []string
	for name, values := range r.URL.Query() {
		slices.Sort(values)
		query = append(query, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(query)
	return strings.Join(append(lines, query...), "\n")
}

// signedLength returns the length of the body. It is 0 for a POST without one, and empty for other methods.
func signedLength(r *http.Request) string {
	if r.ContentLength > 0 || r.Method == http.MethodPost {
		return strconv.FormatInt(r.ContentLength, 10)
	}
	return ""
}
