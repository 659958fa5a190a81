package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// Time limits of connections. Bodies have others: uploads and downloads may have any size.
const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// web holds the server's addresses, its certificate and its time to shut down.
type web struct {
	listen, metrics string
	cert, key       string
	shutdown        time.Duration
}

func (w *web) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.listen, "listen", "127.0.0.1:2900", "the `address` to serve on")
	f.StringVar(&w.metrics, "metrics-listen", "", "the `address` to serve /metrics on (default: none)")
	f.StringVar(&w.cert, "tls-cert", "", "the `file` with the certificate chain; read again when it changes")
	f.StringVar(&w.key, "tls-key", "", "the `file` with the certificate's private key")
	f.DurationVar(&w.shutdown, "shutdown-timeout", 20*time.Second, "the longest `time` to wait for requests under way after a signal")
}

// check fails if the flags for TLS do not fit together or the certificate cannot be read.
func (w *web) check() error {
	if (w.cert == "") != (w.key == "") {
		return errors.New("--tls-cert and --tls-key need each other")
	}
	if w.cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(w.cert, w.key); err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	return nil
}

// serve serves until ctx ends. swept is the number of unfinished uploads that the start removed.
func (w *web) serve(ctx context.Context, config server.Config, swept int) error {
	listener, err := listen(ctx, w.listen)
	if err != nil {
		return err
	}
	scheme := "http"
	if w.cert != "" {
		pair := keyPair{cert: w.cert, key: w.key, log: config.Log}
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: pair.current, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		scheme = "https"
	}
	service := server.New(config)
	sites := map[*http.Server]net.Listener{site(config, service.Handler()): listener}
	if w.metrics != "" {
		metrics, err := listen(ctx, w.metrics)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", service.MetricsHandler())
		sites[site(config, mux)] = metrics
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "serving",
		slog.String("address", scheme+"://"+listener.Addr().String()), slog.Int("unfinished_uploads_removed", swept))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return service.Run(ctx) })
	for one, on := range sites {
		g.Go(func() error {
			if err := one.Serve(on); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
		g.Go(func() error { return w.stop(ctx, one) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	return nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

func site(config server.Config, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
	}
}

// stop waits until ctx ends, and then for the requests under way.
func (w *web) stop(ctx context.Context, one *http.Server) error {
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.shutdown)
	defer cancel()
	if err := one.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("end requests under way: %w", err), one.Close())
	}
	return nil
}

// keyPair is a certificate with its key in two files. A program that renews certificates writes new
// files; connections that begin afterwards get the new certificate.
type keyPair struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	read   time.Time // when the certificate's file was changed that was read
	loaded *tls.Certificate
}

// current returns the certificate in the files, or the last good one.
func (k *keyPair) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.cert)
	if err == nil && !info.ModTime().Equal(k.read) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(k.cert, k.key); err == nil {
			k.loaded, k.read = &pair, info.ModTime()
		}
	}
	failures.Log(context.Background(), k.log, "read the certificate", err)
	if k.loaded == nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return k.loaded, nil
}
