package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
)

// clServer is a cl-server that runs as a process of its own.
type clServer struct {
	part

	address string
}

// startServer starts the cl-server in this program's directory, where make installs both, and waits until
// it serves. It prints the errors that the server logs.
func startServer(ctx context.Context, dir string) clServer {
	return startServerAt(ctx, dir, "127.0.0.1")
}

// startServerAt is startServer, at an address of this host.
func startServerAt(ctx context.Context, dir, host string) clServer {
	beside := filepath.Join(filepath.Dir(must(os.Executable())), "cl-server")
	cmd := exec.CommandContext(ctx, beside, "run", "--data", dir, "--listen", net.JoinHostPort(host, "0"), "--check-in-hold", checkInHold.String())
	log := bufio.NewScanner(must(cmd.StderrPipe()))
	check(cmd.Start())
	serving := regexp.MustCompile(`msg=serving address=(\S+)`)
	for log.Scan() {
		m := serving.FindStringSubmatch(log.Text())
		if m == nil {
			fmt.Fprintln(os.Stderr, log.Text())
			continue
		}
		background.Detach(func() { // returns with the server
			for log.Scan() {
				if strings.Contains(log.Text(), "level=ERROR") {
					fmt.Fprintln(os.Stderr, log.Text())
				}
			}
		})
		return clServer{part{cmd: cmd, pid: cmd.Process.Pid}, m[1]}
	}
	check(errors.Join(errors.New("cl-server ended early"), cmd.Wait()))
	return clServer{}
}

// makeUsers makes a data directory with ann and others, and signs all of them in. It returns their
// tokens by name.
func makeUsers(ctx context.Context, dir string, others ...string) map[string]string {
	s := openServer(ctx, dir, 0)
	defer func() { check(s.data.Close()) }()
	tokens := map[string]string{"ann": s.signIn("ann")}
	for _, name := range others {
		check(s.data.AddUser(ctx, coreAccount(codalab.NewUUID(), name)))
		tokens[name] = s.signIn(name)
	}
	return tokens
}

// signIn returns a token of a user. A sign-in at cl-server itself would compute a costly hash, and the
// memory for that would count in the figures.
func (s *coreServer) signIn(name string) string {
	form := url.Values{"grant_type": {"password"}, "username": {name}, "password": {corePassword}}
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(client.CommandClient, "")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	var answer struct {
		Token string `json:"access_token"`
	}
	check(json.Unmarshal(w.Body.Bytes(), &answer))
	if answer.Token == "" {
		check(fmt.Errorf("sign in %s: %s", name, w.Body))
	}
	return answer.Token
}

// heldToken is a client.TokenCache with a token that is not renewed.
type heldToken string

func (t heldToken) Load() client.Token {
	return client.Token{Access: string(t), Renew: time.Now().Add(time.Hour)}
}

func (heldToken) Save(client.Token) {}

// signedIn returns a client that calls the server with a token of a user.
func signedIn(address, token string) *client.Client {
	return must(client.New(address, client.Options{Tokens: heldToken(token), Credentials: func(context.Context) (string, string, error) {
		return "", "", errors.New("the token was refused")
	}}))
}
