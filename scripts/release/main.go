// Command release builds a release of cl-slurm: static programs as archives and packages, an
// SBOM and their digests. `make release` calls it. It needs the sources, Go and git.
//
// Two builds of a commit, by the same version of Go, give the same bytes: in any directory, at
// any time, on any machine. All files have the commit's time (or SOURCE_DATE_EPOCH).
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	source := flags.String("source", ".", "the `directory` of the sources")
	out := flags.String("out", "dist", "the `directory` to write the release into; its contents are removed")
	version := flags.String("version", "", "the `version`, such as v1.2.3 (default: that of git describe)")
	platforms := flags.String("platforms", strings.Join(allPlatforms(), ","), "the systems and architectures, by `names` such as linux/amd64")
	key := flags.String("sign-key", "", "the `file` with the SSH key that signs SHA256SUMS: a private key, or the public key of one in ssh-agent (default: the release is not signed)")
	address := flags.String("url", "", "the `address` of the directory in which the release will lie, for install.sh and the manifests of Homebrew and Scoop (default: install.sh needs --from, and there are no manifests)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &release{version: *version, url: strings.TrimSuffix(*address, "/")}
	if u, err := url.Parse(r.url); r.url != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || strings.ContainsAny(r.url, "'\"\\$`# ")) {
		return fmt.Errorf("-url: %q is no plain address with https://", r.url)
	}
	for name := range strings.SplitSeq(*platforms, ",") {
		p, err := parsePlatform(name)
		if err != nil {
			return err
		}
		r.platforms = append(r.platforms, p)
	}
	var err error
	if r.source, err = filepath.Abs(*source); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(*out); err != nil {
		return err
	}
	if *key != "" {
		if r.key, err = filepath.Abs(*key); err != nil {
			return err
		}
		if _, err := os.Stat(r.key); err != nil { // before minutes of building
			return fmt.Errorf("-sign-key: %w", err)
		}
	}
	if err := r.askGit(ctx, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	return r.sign(ctx)
}
