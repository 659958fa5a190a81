package sso

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Options are the operator's settings. An empty Issuer means that there is no provider.
type Options struct {
	// Issuer is the provider's address, and ClientID and ClientSecret are what it knows this server by. ClientSecret reads
	// the secret at each use; nil means none.
	Issuer, ClientID string
	ClientSecret     func() (string, error)
	// URL is the address at which browsers reach this server, without a slash at its end.
	URL string
	// UsernameClaim is the claim whose value is a user's name here: the first sign-in with it makes the person that user.
	// Empty for none.
	UsernameClaim string
	// Create makes users who are not known yet, with the names in UsernameClaim; nil makes none. It returns the quotas.
	Create func() (timeQuota, diskQuota, parallelRuns int64)
	// Interval is the least time between two questions of a program; default 5 s.
	Interval time.Duration
}

// Check returns what is missing or unsafe.
func (o Options) Check() error {
	switch {
	case o.ClientID == "" || o.URL == "":
		return errors.New("a provider needs --oidc-client-id, and --public-url: the address at which browsers reach this server")
	case o.Create != nil && o.UsernameClaim == "":
		return errors.New("--oidc-create-users needs --oidc-username-claim, such as preferred_username, which names the users")
	}
	if err := CheckAddress("--oidc-issuer", o.Issuer); err != nil {
		return err
	}
	return CheckAddress("--public-url", o.URL)
}

// CheckAddress returns what is unsafe about the address in a flag.
func CheckAddress(flag, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%s %q: want https://HOST", flag, address)
	}
	local := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("%s %q: want https, which only an address of this machine need not have", flag, address)
	}
	return nil
}

// callbackPath is that of the page to which the provider sends browsers.
const callbackPath = Path + "/callback"

// provider speaks with the provider. It finds the provider's addresses and keys at its first use, so that the server starts
// without it. It is safe for concurrent use.
type provider struct {
	Options
	now  func() time.Time
	http *http.Client

	mu    sync.Mutex
	found *oidc.Provider
}

// within bounds each request to the provider.
const within = 10 * time.Second

// find returns the provider's addresses and keys. The keys are fetched again when a token is signed with an unknown one.
func (p *provider) find(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("find the provider: %w", err)
	}
	p.found = found
	return found, nil
}

// client returns the configuration of a request to the provider.
func (p *provider) client(found *oidc.Provider) (oauth2.Config, error) {
	c := oauth2.Config{
		ClientID: p.ClientID, Endpoint: found.Endpoint(), RedirectURL: p.URL + callbackPath,
		Scopes: []string{oidc.ScopeOpenID, "profile", "email"},
	}
	var err error
	if p.ClientSecret != nil {
		c.ClientSecret, err = p.ClientSecret()
	}
	return c, err
}

// secrets are those of one sign-in at the provider.
type secrets struct{ state, nonce, verifier string }

// address returns the provider's page for a sign-in.
func (p *provider) address(ctx context.Context, s secrets) (string, error) {
	found, err := p.find(ctx)
	if err != nil {
		return "", err
	}
	c, err := p.client(found)
	return c.AuthCodeURL(s.state, oidc.Nonce(s.nonce), oauth2.S256ChallengeOption(s.verifier)), err
}

// person is what the provider says of a person who has signed in there.
type person struct {
	Subject string
	// Email is empty unless the provider has verified it.
	Email string
	// Name is the value of UsernameClaim; empty if it has none.
	Name string
}

// exchange returns the person of a provider's code.
func (p *provider) exchange(ctx context.Context, code string, s secrets) (person, error) {
	ctx = oidc.ClientContext(ctx, p.http)
	found, err := p.find(ctx)
	if err != nil {
		return person{}, err
	}
	c, err := p.client(found)
	if err != nil {
		return person{}, err
	}
	token, err := c.Exchange(ctx, code, oauth2.VerifierOption(s.verifier))
	if err != nil {
		return person{}, fmt.Errorf("exchange the provider's code: %w", withoutBody(err))
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return person{}, errors.New("the provider gave no id_token")
	}
	verified, err := found.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return person{}, fmt.Errorf("verify the provider's token: %w", err)
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return person{}, fmt.Errorf("read the provider's token: %w", err)
	}
	authorized, _ := claims["azp"].(string)
	switch {
	case subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(s.nonce)) != 1:
		return person{}, errors.New("the provider's token has the nonce of another sign-in")
	case authorized != "" && authorized != p.ClientID, authorized == "" && len(verified.Audience) > 1: // section 3.1.3.7
		return person{}, errors.New("the provider's token is for another client")
	}
	if err := p.addClaims(ctx, found, token, verified.Subject, claims); err != nil {
		return person{}, err
	}
	return p.read(verified.Subject, claims), nil
}

// addClaims asks the provider for more about the person, if the token says nothing about the e-mail address or the name.
func (p *provider) addClaims(ctx context.Context, found *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any) error {
	if claims["email"] != nil && (p.UsernameClaim == "" || claims[p.UsernameClaim] != nil) || found.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("ask the provider about the person: %w", withoutBody(err))
	}
	if info.Subject != subject { // OpenID Connect Core 1.0, section 5.3.2
		return errors.New("the provider told about another person")
	}
	if err := info.Claims(&claims); err != nil {
		return fmt.Errorf("read what the provider told about the person: %w", err)
	}
	return nil
}

func (p *provider) read(subject string, claims map[string]any) person {
	text := func(name string) string {
		s, _ := claims[name].(string)
		return strings.TrimSpace(s)
	}
	who := person{Subject: subject, Name: text(p.UsernameClaim)}
	if verified := claims["email_verified"]; verified == true || verified == "true" { // some providers send a text
		who.Email = text("email")
	}
	return who
}

// withoutBody leaves out the provider's answer, except its error code: it may repeat secrets.
func withoutBody(err error) error {
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("%s %s", failed.Response.Status, failed.ErrorCode) //nolint:err113 // for the log
	}
	return err
}
