package batchtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"
)

// authenticate returns the reason for which a request is not authenticated; empty if it is.
func (s *Service) authenticate(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch scheme {
	case "Bearer":
		if s.Bearer == "" || value != s.Bearer {
			return "The token is not valid."
		}
		return ""
	case "SharedKey":
	default:
		return "The Authorization header is missing."
	}
	account, given, _ := strings.Cut(value, ":")
	if account != s.Account {
		return "The account " + account + " is not this one."
	}
	date := r.Header.Get("Ocp-Date")
	if date == "" {
		date = r.Header.Get("Date")
	}
	at, err := http.ParseTime(date)
	if err != nil {
		return "The date header is missing or not in the form of RFC 1123."
	}
	if s.Now().Sub(at).Abs() > 15*time.Minute {
		return fmt.Sprintf("The request date header is too old or too new. Server time: %s, date header: %s.", s.Now().UTC().Format(http.TimeFormat), date)
	}
	key, _ := base64.StdEncoding.DecodeString(s.Key)
	hash := hmac.New(sha256.New, key)
	_, _ = hash.Write([]byte(toSign(account, r)))
	signature, err := base64.StdEncoding.DecodeString(given)
	if err != nil || !hmac.Equal(signature, hash.Sum(nil)) {
		return "The MAC signature found in the HTTP request is not the same as any computed signature. Server used following string to sign: " +
			strings.ReplaceAll(toSign(account, r), "\n", `\n`)
	}
	return ""
}

// toSign builds the text to sign from a request as it came over the wire.
func toSign(account string, r *http.Request) string {
	var b strings.Builder
	length := ""
	if r.ContentLength > 0 || r.Method == http.MethodPost {
		length = fmt.Sprint(r.ContentLength)
	}
	h := r.Header
	fmt.Fprintf(&b, "%s\n%s\n%s\n%s\n", r.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length)
	fmt.Fprintf(&b, "%s\n%s\n%s\n", h.Get("Content-MD5"), h.Get("Content-Type"), h.Get("Date"))
	fmt.Fprintf(&b, "%s\n%s\n%s\n%s\n%s\n", h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"), h.Get("If-Unmodified-Since"), h.Get("Range"))
	lines := []string{}
	for name, values := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "ocp-") {
			lines = append(lines, name+":"+strings.TrimSpace(values[0])+"\n")
		}
	}
	sort.Strings(lines)
	b.WriteString(strings.Join(lines, "") + "/" + account + r.URL.Path)
	lines = lines[:0]
	for name, values := range r.URL.Query() {
		sort.Strings(values)
		lines = append(lines, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	sort.Strings(lines)
	b.WriteString(strings.Join(lines, ""))
	return b.String()
}
