package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// counting is a proxy before a server that counts what it sends of bundles'
// contents.
type counting struct {
	bytes, answers atomic.Int64
}

// before starts the proxy until ctx ends, and returns its address.
func (c *counting) before(ctx context.Context, server string) (string, error) {
	to, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("start proxy: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet && strings.Contains(r.Request.URL.Path, "/contents/blob/") {
				c.answers.Add(1)
				r.Body = &countingBody{ReadCloser: r.Body, count: &c.bytes}
			}
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      quiet(), // of check-ins that end with the bridge
	}
	return serve(ctx, proxy)
}

// quiet keeps servers from telling of each request among the figures.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// serve serves on loopback until ctx ends, and returns the address.
func serve(ctx context.Context, h http.Handler) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

type countingBody struct {
	io.ReadCloser
	count *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	return n, err
}

// staged measures staging on a whole site: how often 64 bundles fetch what they
// all want, and how long an allocation is held before a command whose image and
// dependency had to be fetched.
func staged(ctx context.Context, dir string) (figures []figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var proxy counting
	var refused error
	var once sync.Once
	var via string
	site, err := testsite.Start(ctx, testsite.Options{Via: func(server string) string {
		once.Do(func() { via, refused = proxy.before(ctx, server) })
		return via
	}})
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	b := &mainBench{site: site}
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	shared, err := b.sixtyFour(ctx, &proxy)
	if err != nil {
		return nil, err
	}
	cold, err := b.cold(ctx, dir)
	return append(shared, cold...), err
}

// upload makes a bundle of random bytes.
func (b *mainBench) upload(ctx context.Context, name string, size int64) error {
	path := filepath.Join(b.site.Dir, "home", name)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make data: %w", err)
	}
	_, err = io.Copy(f, randomBytes(size))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("make data: %w", err)
	}
	_, err = b.site.CL(ctx, "upload", name)
	return errors.Join(err, os.Remove(path))
}

func randomBytes(size int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{byte(size)}), size)
}

const gigabyte = 1_000_000_000

func (b *mainBench) sixtyFour(ctx context.Context, proxy *counting) ([]figure, error) {
	if err := b.upload(ctx, "big", gigabyte); err != nil {
		return nil, err
	}
	bytes, answers := proxy.bytes.Load(), proxy.answers.Load()
	var runs []string
	for range 64 {
		uuid, err := b.site.CL(ctx, "run", "d:big", "wc -c < d", "--request-queue", "cpu")
		if err != nil {
			return nil, err
		}
		runs = append(runs, uuid)
	}
	for _, uuid := range runs {
		if _, err := b.site.CL(ctx, "wait", uuid); err != nil {
			return nil, err
		}
	}
	bytes, answers = proxy.bytes.Load()-bytes, proxy.answers.Load()-answers
	return []figure{
		{name: "disk/downloads_for_64_jobs", value: float64(answers), unit: "downloads", bar: 1, barText: "1"},
		{name: "disk/bytes_for_64_jobs", value: float64(bytes) / 1e9, unit: "GB", against: "its_size", base: 1, bar: 1.01, barText: "1.01"},
	}, nil
}

// cold measures runs of an image of 2 GB on a dependency of 5 GB, none of which
// is there.
func (b *mainBench) cold(ctx context.Context, dir string) ([]figure, error) {
	if err := b.upload(ctx, "huge", 5*gigabyte); err != nil {
		return nil, err
	}
	image, err := b.largeImage(ctx, dir)
	if err != nil {
		return nil, err
	}
	var held, waited []float64
	for range 3 {
		if err := b.site.StopBridge(); err != nil {
			return nil, err
		}
		if err := empty(filepath.Join(b.site.Shared, "cache")); err != nil {
			return nil, err
		}
		if err := b.site.StartBridge(ctx); err != nil {
			return nil, err
		}
		t, err := b.bundle(ctx, "d:huge", "--request-docker-image", image)
		if err != nil {
			return nil, err
		}
		held, waited = append(held, t.held), append(waited, t.first)
	}
	return []figure{
		{name: "disk/allocation_before_command_cold", value: median(held), unit: "s", bar: 0.3, barText: "0.3"},
		{name: "disk/cold_until_command", value: median(waited), unit: "s", barText: "-", atLeast: true},
	}, nil
}

// empty removes what is in a directory.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty %s: %w", dir, err)
		}
	}
	return nil
}

// largeImage puts a layer of 2 GB onto the site's image and serves it.
func (b *mainBench) largeImage(ctx context.Context, dir string) (string, error) {
	from, err := name.ParseReference(b.site.Image, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	base, err := remote.Image(from, remote.WithContext(ctx))
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	path := filepath.Join(dir, "layer.tar")
	if err := writeLayer(path, 2*gigabyte); err != nil {
		return "", err
	}
	layer, err := tarball.LayerFromFile(path, tarball.WithCompressionLevel(1))
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	large, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	address, err := serve(ctx, registry.New(registry.Logger(quiet()), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir))))
	if err != nil {
		return "", err
	}
	image := strings.TrimPrefix(address, "http://") + "/large:1"
	to, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	if err := remote.Write(to, large, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("make an image: %w", err)
	}
	return image, nil
}

func writeLayer(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	w := tar.NewWriter(f)
	err = w.WriteHeader(&tar.Header{Name: "opt/weights", Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = io.Copy(w, randomBytes(size))
	}
	if err := errors.Join(err, w.Close(), f.Close()); err != nil {
		return fmt.Errorf("make a layer: %w", err)
	}
	return nil
}
