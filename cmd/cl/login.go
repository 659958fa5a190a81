package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// errNoCredentials is the error of a call that needs a login when cl cannot prompt.
var errNoCredentials = errors.New("no user name and password: " +
	"set CODALAB_USERNAME and CODALAB_PASSWORD, or run cl on a terminal")

// connect returns a client of a server. It sends nothing yet.
func (c *cli) connect(address string) (*client.Client, error) {
	if api, ok := c.clients[address]; ok {
		return api, nil
	}
	state, err := c.load()
	if err != nil {
		return nil, err
	}
	l := &login{cli: c, address: address, user: c.Getenv("CODALAB_USERNAME")}
	if l.user == "" {
		l.user = state.Users[address]
	}
	var api *client.Client
	l.reach = func(ctx context.Context) error { return api.Reach(ctx) }
	l.browser = func(ctx context.Context) bool { return api.OffersBrowser(ctx) }
	api, err = client.New(address, client.Options{
		ClientID:    client.CommandClient,
		Credentials: l.credentials,
		Tokens:      l,
		Compress:    true, // a researcher may be far from the server
		Now:         c.Now,
	})
	if err != nil {
		return nil, refusef("%v", err)
	}
	if c.clients == nil {
		c.clients = map[string]*client.Client{}
	}
	c.clients[address] = api
	return api, nil
}

// login is one user's login at one server. Its token has a file of its own, which only the
// user can read, so that concurrent processes of several users or servers keep their tokens
// apart.
type login struct {
	cli     *cli
	address string
	// user is empty until it is known.
	user string
	// reach fails unless the server answers as CodaLab's does.
	reach func(context.Context) error
	// browser reports whether the server lets people sign in by a browser.
	browser func(context.Context) bool
}

// path is the token's file; empty while the user is not known.
func (l *login) path() string {
	dir, err := l.cli.home()
	if err != nil || l.user == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(l.address + "\x00" + l.user))
	return filepath.Join(dir, "cl-tokens", hex.EncodeToString(sum[:8])+".json")
}

// Load returns the token that was saved last; none if the file cannot be read.
func (l *login) Load() client.Token {
	var t client.Token
	path := l.path()
	if path == "" {
		return t
	}
	data, err := strictmodes.ReadSecret("login", path) // else other users might have written it
	if err != nil || json.Unmarshal(data, &t) != nil {
		return client.Token{}
	}
	return t
}

// Save keeps a token. If that fails it prints a warning: cl will ask for the password again.
func (l *login) Save(t client.Token) {
	if err := l.save(t); err != nil && !l.cli.quiet {
		fmt.Fprintf(l.cli.Stderr, "cl: the login cannot be saved: %v\n", err)
	}
}

func (l *login) save(t client.Token) error {
	path := l.path()
	if path == "" {
		return nil
	}
	if err := l.cli.remember(l.address, l.user); err != nil {
		return err
	}
	return saveFile(path, t)
}

// credentials returns the name and password in the environment, or else asks for them
// (codalab_manager.py: _authenticate).
func (l *login) credentials(ctx context.Context) (user, password string, err error) {
	c := l.cli
	user, password = c.Getenv("CODALAB_USERNAME"), c.Getenv("CODALAB_PASSWORD")
	if user != "" && password != "" {
		return user, password, nil
	}
	// If the server does not answer, the user need not type a password.
	if err := l.reach(ctx); err != nil {
		return "", "", err
	}
	_, ok := terminal(c.Stdin)
	in, isFile := c.Stdin.(account.Terminal)
	byBrowser := !c.quiet && l.browser(ctx)
	switch {
	case ok && isFile && !c.quiet:
	case byBrowser:
		return "", "", fmt.Errorf("%w, or run cl login --sso", errNoCredentials)
	default:
		return "", "", errNoCredentials
	}
	fmt.Fprintf(c.Stderr, "Requesting access at %s\n", l.address)
	if byBrowser {
		fmt.Fprintln(c.Stderr, "(cl login --sso signs in by a browser)")
	}
	defer c.guardTerminal()()
	asked := account.Login{User: user}
	if err := asked.Ask(c.Stderr, in); err != nil {
		return "", "", err
	}
	l.user, c.entered = asked.User, asked.Password
	return asked.User, asked.Password, nil
}

// guardTerminal begins a prompt, and returns the function that ends it. An interrupt ends cl while the prompt still
// reads: restoreTerminal undoes the prompt then.
func (c *cli) guardTerminal() (end func()) {
	fd, _ := terminal(c.Stdin)
	before, err := term.GetState(fd)
	if err != nil {
		return func() {} // no terminal, so there is nothing to restore
	}
	restore := func() { _ = term.Restore(fd, before) } // the terminal may have gone
	c.prompt.Store(&restore)
	return func() { c.prompt.Store(nil) }
}

// restoreTerminal ends a prompt that was interrupted.
func (c *cli) restoreTerminal() {
	if restore := c.prompt.Load(); restore != nil {
		(*restore)()
	}
}

// remember keeps the name of the user at a server.
func (c *cli) remember(address, user string) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	if state.Users[address] == user {
		return nil
	}
	return c.update(func(state *stateFile) { state.Users[address] = user })
}
