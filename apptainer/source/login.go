package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// dockerHub is the host of references without one. dockerHubKey is its name in the files of docker
// login.
const (
	dockerHub    = "docker.io"
	dockerHubKey = authn.DefaultAuthKey
)

// Logins are logins for registries, from configurations of Docker (config.json) or Podman
// (auth.json). The first configuration with a login for a repository counts. The files are read for
// each connection, so that a new docker login takes effect immediately. The zero value has none.
type Logins struct {
	// Files are the configurations, in order.
	Files []LoginFile
	// HelperEnv is the environment of the credential helpers in the configurations, which are
	// programs docker-credential-NAME.
	HelperEnv []string
}

// LoginFile is one configuration.
type LoginFile struct {
	// Path is the path of the file, which need not exist.
	Path string
	// Owner names the owner of the logins in errors.
	Owner string
	// Secret refuses a file that other users may read, even if it has no login in it.
	Secret bool
}

// Of returns the logins for one owner: first those in dir, at OWNER.json or OWNER/config.json,
// which only this process's user may be able to read, and then l. An empty dir has none.
func (l Logins) Of(dir, owner string) Logins {
	if dir == "" || owner == "" || owner == "." || owner == ".." || strings.ContainsAny(owner, "/\x00") {
		return l
	}
	own := []LoginFile{
		{Path: filepath.Join(dir, owner+".json"), Owner: owner, Secret: true},
		{Path: filepath.Join(dir, owner, "config.json"), Owner: owner, Secret: true},
	}
	return Logins{Files: append(own, l.Files...), HelperEnv: l.HelperEnv}
}

// login is the login for a repository.
type login struct {
	config authn.AuthConfig
	owner  string // LoginFile.Owner
}

// loginConfig is the content of a configuration (docker/cli cli/config/configfile;
// containers-auth.json(5)).
type loginConfig struct {
	Auths       map[string]authn.AuthConfig `json:"auths"`
	CredHelpers map[string]string           `json:"credHelpers"`
	CredsStore  string                      `json:"credsStore"`
}

// findLogin returns the login for a repository, or nil. Its errors are transient, because the site
// can repair its logins. They contain no secret.
func (l Logins) findLogin(ctx context.Context, host, repository string) (*login, error) {
	for _, f := range l.Files {
		config, err := f.read()
		if err == nil {
			var found authn.AuthConfig
			if found, err = l.lookUp(ctx, config, host, repository); found != (authn.AuthConfig{}) {
				return &login{config: found, owner: f.Owner}, nil
			}
		}
		if err != nil {
			return nil, plainError{text: fmt.Sprintf("the logins of %s cannot be used: %v", f.Owner, err), cause: err, transient: true}
		}
	}
	return nil, nil
}

// maxLoginBytes limits a configuration.
const maxLoginBytes = 1 << 20

func (f LoginFile) read() (loginConfig, error) {
	var config loginConfig
	file, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return config, nil
	}
	if err != nil {
		return config, err
	}
	defer func() { _ = file.Close() }()
	if f.Secret {
		if err := strictmodes.CheckSecret("login", file); err != nil {
			return config, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxLoginBytes))
	if err != nil {
		return config, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return config, fmt.Errorf("%s is not a Docker configuration: %s", f.Path, plainJSON(err))
	}
	if config.hasSecrets() {
		return config, strictmodes.CheckSecret("login", file)
	}
	return config, nil
}

// hasSecrets reports whether the configuration has logins itself, and not only the names of helpers.
func (c loginConfig) hasSecrets() bool {
	for _, entry := range c.Auths {
		if entry != (authn.AuthConfig{}) {
			return true
		}
	}
	return false
}

// plainJSON describes an error in a file without quoting the file.
func plainJSON(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("wrong at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf("%q is of the wrong kind", kind.Field)
	default:
		return "it cannot be decoded"
	}
}

// lookUp finds a login in a configuration. It asks the helper for the host, or else takes the
// matching entry with the longest name, or else asks the helper for all hosts.
func (l Logins) lookUp(ctx context.Context, config loginConfig, host, repository string) (authn.AuthConfig, error) {
	for key, helper := range config.CredHelpers {
		if loginKey(key) == host {
			return l.askHelper(ctx, helper, key)
		}
	}
	entries := map[string]authn.AuthConfig{}
	for key, entry := range config.Auths {
		if entry != (authn.AuthConfig{}) { // an empty entry means that a helper has the login
			entries[loginKey(key)] = entry
		}
	}
	for name := host + "/" + repository; ; {
		if entry, ok := entries[name]; ok {
			return entry, nil
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			break
		}
		name = name[:i]
	}
	if config.CredsStore == "" {
		return authn.AuthConfig{}, nil
	}
	if host == dockerHub {
		host = dockerHubKey
	}
	return l.askHelper(ctx, config.CredsStore, host)
}

// loginKey returns an entry's name in the form of references. Old files have addresses (docker/cli
// cli/config/credentials/file_store.go: ConvertToHostname).
func loginKey(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	key = strings.TrimSuffix(key, "/")
	key = strings.TrimSuffix(strings.TrimSuffix(key, "/v1"), "/v2")
	host, rest, below := strings.Cut(key, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	if below {
		return host + "/" + rest
	}
	return host
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// askHelper asks a credential helper (the README of docker-credential-helpers describes the
// protocol). Errors never quote its output, which may be secret.
func (l Logins) askHelper(ctx context.Context, helper, server string) (authn.AuthConfig, error) {
	if !helperName.MatchString(helper) {
		return authn.AuthConfig{}, errors.New("the name of its credential helper cannot be a program's")
	}
	program := "docker-credential-" + helper
	out, err := command.Command{Args: []string{program, "get"}, Env: l.HelperEnv, Stdin: strings.NewReader(server)}.Output(ctx)
	if err != nil && bytes.Contains(out, []byte("credentials not found")) {
		return authn.AuthConfig{}, nil
	}
	var failed *command.Error
	switch {
	case ctx.Err() != nil:
		return authn.AuthConfig{}, fmt.Errorf("%s does not answer", program)
	case errors.As(err, &failed) && failed.Started():
		return authn.AuthConfig{}, fmt.Errorf("%s has failed: exit status %d", program, failed.ExitCode)
	case errors.As(err, &failed):
		return authn.AuthConfig{}, fmt.Errorf("%s cannot be started: %w", program, failed.Err)
	}
	var found struct{ Username, Secret string }
	if err := json.Unmarshal(out, &found); err != nil {
		return authn.AuthConfig{}, fmt.Errorf("%s did not answer with a login", program)
	}
	if found.Username == "<token>" {
		return authn.AuthConfig{IdentityToken: found.Secret}, nil
	}
	return authn.AuthConfig{Username: found.Username, Password: found.Secret}, nil
}
