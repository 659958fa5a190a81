package assembly

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// NewSource returns the source of images: registries, with the logins of the bridge's user, and files
// below image.roots. pace bounds the downloads; nil does not.
func NewSource(c config.Config, getenv func(string) string, pace *transfer.Pace) source.Source {
	var known []string
	if server, err := url.Parse(c.Server); err == nil {
		known = []string{server.Host}
	}
	private, _ := c.Image.Private() // Parse has checked it
	return source.Source{
		Known: known, Hosts: c.Image.Hosts(), Private: private, Certs: certs(c.Image),
		Logins:   source.Logins{Files: loginFiles(c.Image, getenv), HelperEnv: helperEnv(getenv)},
		OpenFile: source.FilesBelow(c.Image.Roots...),
		Reader:   pace.Reader,
	}
}

// certs returns the directories of registries' certificates: those that the file names,
// or else those of Docker and Podman that can be read.
func certs(c config.Image) []string {
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

// loginFiles returns the files that docker login and podman login write
// (docker/cli cli/config: Dir; containers-auth.json(5)).
func loginFiles(c config.Image, getenv func(string) string) []source.LoginFile {
	const owner = "the bridge's user"
	if c.DockerConfig != "" {
		return []source.LoginFile{{Path: c.DockerConfig, Owner: owner}}
	}
	var paths []string
	home := getenv("HOME")
	switch dir := getenv("DOCKER_CONFIG"); {
	case dir != "":
		paths = append(paths, filepath.Join(dir, "config.json"))
	case home != "":
		paths = append(paths, filepath.Join(home, ".docker", "config.json"))
	}
	switch file, dir := getenv("REGISTRY_AUTH_FILE"), getenv("XDG_RUNTIME_DIR"); {
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
		files = append(files, source.LoginFile{Path: path, Owner: owner})
	}
	return files
}

// helperEnv returns the environment of credential helpers: what their stores need, and
// nothing else.
func helperEnv(getenv func(string) string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "PASSWORD_STORE_DIR"} {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// OwnerLogins returns a function for images.Images.Login: it gives an owner's bundles the
// source with that owner's login, where image.logins has one. It is nil without
// image.logins.
func OwnerLogins(c config.Config, r source.Source) func(owner string, ref source.Reference) (source.Source, string) {
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

// hasLogin reports whether an owner has a login.
func hasLogin(dir, owner string) bool {
	for _, path := range []string{owner + ".json", filepath.Join(owner, "config.json")} {
		if _, err := os.Lstat(filepath.Join(dir, path)); err == nil {
			return true
		}
	}
	return false
}
