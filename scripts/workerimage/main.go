// Command workerimage builds the container image of cl-worker for batch systems of clouds: the static program, the
// Debian programs that the built-in runtime needs, and the certificates of authorities. `make worker-image` calls it.
//
// It needs Go, apt-get and dpkg-deb, and no Docker and no root. apt works in a directory of its own: the packages and
// the settings of the machine stay as they are. Two builds of a commit with the same versions of the packages and of
// Go give the same digest. All files have the commit's time (or SOURCE_DATE_EPOCH).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "workerimage:", err)
		os.Exit(1)
	}
}

// build describes one build.
type build struct {
	// source is the directory of the sources.
	source string
	// version is the version of a release, such as v1.2.3; empty for that of the commit.
	version string
	// time is the time of all files; zero for that of the commit.
	time          time.Time
	architectures []string
	debian        debian
	// dir is a directory for the build's own files.
	dir string
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("workerimage", flag.ExitOnError)
	var b build
	flags.StringVar(&b.source, "source", ".", "the `directory` of the sources")
	flags.StringVar(&b.version, "version", "", "the `version` of a release, such as v1.2.3 (default: that of the commit)")
	flags.StringVar(&b.debian.suite, "suite", "trixie", "the `suite` of Debian")
	flags.StringVar(&b.debian.mirror, "mirror", "http://deb.debian.org/debian", "the `address` of Debian's packages")
	flags.StringVar(&b.debian.security, "security-mirror", "http://deb.debian.org/debian-security", "the `address` of their security updates")
	out := flags.String("out", "dist/cl-worker-image.tar", "the `file` to write the image into, an OCI archive; empty for none")
	push := flags.String("push", "", "push the image under the `name`, such as registry.site/lab/cl-worker:1")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "the systems and architectures, by `names`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.architectures, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		b.time = time.Unix(seconds, 0).UTC()
	}
	if *push != "" { // before the work of a minute
		if _, err := name.ParseReference(*push); err != nil {
			return fmt.Errorf("-push: %w", err)
		}
	}
	if b.source, err = filepath.Abs(b.source); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "cl-worker-image-*"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }() // a leftover has no meaning
	made, err := b.image(ctx)
	if err != nil {
		return err
	}
	if *out != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(*out), 0o755), made.write(*out)); err != nil {
			return fmt.Errorf("write %s: %w", *out, err)
		}
	}
	if *push != "" {
		if err := made.push(ctx, *push); err != nil {
			return fmt.Errorf("push %s: %w", *push, err)
		}
	}
	return made.report(os.Stdout, *out, *push)
}

// parsePlatforms returns the architectures, by Go's names, which are Debian's too.
func parsePlatforms(names string) (architectures []string, err error) {
	for name := range strings.SplitSeq(names, ",") {
		system, architecture, _ := strings.Cut(name, "/")
		if _, known := triplets()[architecture]; system != "linux" || !known {
			return nil, fmt.Errorf("there is no image for %q; the platforms are linux/amd64 and linux/arm64", name)
		}
		if !slices.Contains(architectures, architecture) {
			architectures = append(architectures, architecture)
		}
	}
	slices.Sort(architectures)
	return architectures, nil
}

// triplets are the names of the architectures in Debian's paths of libraries.
func triplets() map[string]string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
}
