package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// imageSource is where images come from, at no more than a pace, with the logins of
// who runs the bridge.
func imageSource(p program.Process, c config.Config, pace *transfer.Pace) source.Source {
	var known []string
	if server, err := url.Parse(c.Server); err == nil {
		known = []string{server.Host}
	}
	return source.Source{
		Known: known, Hosts: c.Image.Hosts(), Certs: registryCerts(c.Image),
		Logins: source.Logins{Files: loginFiles(p, c.Image), HelperEnv: helperEnv(p)},
		Reader: pace.Reader,
	}
}

// registryCerts are the directories of registries' certificates: those of Docker and
// Podman where none is named, as far as they may be read.
func registryCerts(c config.Image) []string {
	if c.Certs != nil {
		return c.Certs
	}
	var dirs []string
	for _, dir := range []string{"/etc/containers/certs.d", "/etc/docker/certs.d"} {
		if _, err := os.ReadDir(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// loginFiles are where docker login and podman login put what they were told
// (docker/cli cli/config: Dir; containers-auth.json(5)).
func loginFiles(p program.Process, c config.Image) []source.LoginFile {
	const whose = "the bridge's user"
	if c.DockerConfig != "" {
		return []source.LoginFile{{Path: c.DockerConfig, Whose: whose}}
	}
	var paths []string
	home := p.Getenv("HOME")
	switch dir := p.Getenv("DOCKER_CONFIG"); {
	case dir != "":
		paths = append(paths, filepath.Join(dir, "config.json"))
	case home != "":
		paths = append(paths, filepath.Join(home, ".docker", "config.json"))
	}
	switch file, dir := p.Getenv("REGISTRY_AUTH_FILE"), p.Getenv("XDG_RUNTIME_DIR"); {
	case file != "":
		paths = append(paths, file)
	case dir != "":
		paths = append(paths, filepath.Join(dir, "containers", "auth.json"))
	}
	if home != "" {
		paths = append(paths, filepath.Join(home, ".config", "containers", "auth.json"))
	}
	files := make([]source.LoginFile, 0, len(paths))
	for _, path := range paths {
		files = append(files, source.LoginFile{Path: path, Whose: whose})
	}
	return files
}

// helperEnv is the environment of credential helpers: what the stores need that
// they speak to, and nothing else.
func helperEnv(p program.Process) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "PASSWORD_STORE_DIR"} {
		if value := p.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// ownLogins gives each owner's bundles the registries as that owner's login shows
// them, where there is one in image.logins.
func ownLogins(c config.Config, r source.Source) func(owner string, ref source.Reference) (source.Source, string) {
	dir := c.Image.Logins
	if dir == "" {
		return nil
	}
	return func(owner string, _ source.Reference) (source.Source, string) {
		if owner == "" || strings.ContainsAny(owner, "/\x00") || !hasLogin(dir, owner) {
			return r, ""
		}
		own := r
		own.Logins = r.Logins.Of(dir, owner)
		return own, owner
	}
}

// hasLogin says whether an owner has given a login.
func hasLogin(dir, owner string) bool {
	for _, path := range []string{owner + ".json", filepath.Join(owner, "config.json")} {
		if _, err := os.Lstat(filepath.Join(dir, path)); err == nil {
			return true
		}
	}
	return false
}
