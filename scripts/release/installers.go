package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// installer is install.sh with @URL@ in the place of the release's address.
//
//go:embed install.sh
var installer string

// installers writes install.sh, and for a release whose address is known a formula of Homebrew and a manifest of Scoop. The
// latter two have the digests of the archives in them.
func (r *release) installers() error {
	script := strings.Replace(installer, "@URL@", r.url, 1)
	if err := os.WriteFile(filepath.Join(r.out, "install.sh"), []byte(script), 0o755); err != nil {
		return err
	}
	if r.url == "" {
		return nil
	}
	sums := map[string]string{} // of the client's archives, by platform
	for _, p := range r.platforms {
		sum, err := digest(filepath.Join(r.out, r.clientArchive(p)))
		if err != nil {
			return err
		}
		sums[p.String()] = sum
	}
	if r.has("darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64") {
		if err := os.WriteFile(filepath.Join(r.out, "cl.rb"), []byte(r.formula(sums)), 0o644); err != nil {
			return err
		}
	}
	if !r.has("windows_amd64", "windows_arm64") {
		return nil
	}
	manifest, err := r.manifest(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "cl.json"), manifest, 0o644)
}

// has reports whether the release is for all of these platforms.
func (r *release) has(platforms ...string) bool {
	return !slices.ContainsFunc(platforms, func(name string) bool {
		return !slices.ContainsFunc(r.platforms, func(p platform) bool { return p.String() == name })
	})
}

// clientArchive is the name of the archive with cl for a platform.
func (r *release) clientArchive(p platform) string {
	suffix := ".tar.gz"
	if p.os == "windows" {
		suffix = ".zip"
	}
	return r.archiveName(client, p) + suffix
}

// formula is the formula of Homebrew, for macOS and Linux (docs.brew.sh/Formula-Cookbook).
func (r *release) formula(sums map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "class Cl < Formula\n  desc \"Researcher's command of cl-slurm: uploads data, runs commands on a cluster\"\n"+
		"  homepage \"%s\"\n  version \"%s\"\n", r.url, strings.TrimPrefix(r.version, "v"))
	for _, system := range []struct{ block, os string }{{"macos", "darwin"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "\n  on_%s do\n", system.block)
		for _, cpu := range []struct{ block, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			p := platform{system.os, cpu.arch}
			fmt.Fprintf(&b, "    on_%s do\n      url \"%s/%s\"\n      sha256 \"%s\"\n    end\n", cpu.block, r.url, r.clientArchive(p), sums[p.String()])
		}
		b.WriteString("  end\n")
	}
	b.WriteString(`
  def install
    bin.install "bin/cl"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/cl"
    zsh_completion.install "share/zsh/site-functions/_cl"
    fish_completion.install "share/fish/vendor_completions.d/cl.fish"
  end

  test do
    assert_match "v#{version}", shell_output("#{bin}/cl --version")
  end
end
`)
	return b.String()
}

// manifest is the manifest of Scoop, for Windows (github.com/ScoopInstaller/Scoop/wiki/App-Manifests).
func (r *release) manifest(sums map[string]string) ([]byte, error) {
	type download struct {
		URL  string `json:"url"`
		Hash string `json:"hash"`
		Dir  string `json:"extract_dir"`
	}
	of := func(arch string) download {
		p := platform{"windows", arch}
		return download{r.url + "/" + r.clientArchive(p), sums[p.String()], r.archiveName(client, p)}
	}
	text, err := json.MarshalIndent(map[string]any{
		"version": strings.TrimPrefix(r.version, "v"), "description": "Researcher's command of cl-slurm", "homepage": r.url, "license": "Apache-2.0",
		"architecture": map[string]download{"64bit": of("amd64"), "arm64": of("arm64")}, "bin": "cl.exe",
	}, "", "    ")
	if err != nil {
		return nil, fmt.Errorf("write cl.json: %w", err)
	}
	return append(text, '\n'), nil
}
