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
	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/internal/connections"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// Time limits of connections. Bodies have others: uploads and downloads may have any size.
const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// maxHeader bounds the headers of a request. CodaLab's own server takes an address of 4,094 bytes.
const maxHeader = 256 << 10

// Numbers of connections.
const (
	// maxConnections is the default where the process may have more files open. 5,000 workers hold 5,000 check-ins.
	maxConnections     = 16384
	spareConnections   = 16
	metricsConnections = 16
	// busyRetry is the time after which a client may try again that was refused for lack of connections.
	busyRetry = 5 * time.Second
)

// web holds the server's addresses, its certificate, its number of connections and its time to shut down.
type web struct {
	listen, metrics string
	cert, key       string
	connections     int
	shutdown        time.Duration
}

func (w *web) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.listen, "listen", "127.0.0.1:2900", "the `address` to serve on")
	f.StringVar(&w.metrics, "metrics-listen", "", "the `address` to serve /metrics on (default: none)")
	f.StringVar(&w.cert, "tls-cert", "", "the `file` with the certificate chain; read again when it changes")
	f.StringVar(&w.key, "tls-key", "", "the `file` with the certificate's private key")
	f.IntVar(&w.connections, "max-connections", 0, "the largest `number` of connections (default: half of the files that the process may have open, ulimit -n, and at most 16384)")
	f.DurationVar(&w.shutdown, "shutdown-timeout", 20*time.Second, "the longest `time` to wait for requests under way after a signal")
}

// checkConnections sets the number of connections, and fails if it leaves no descriptors for files and the database.
func (w *web) checkConnections() error {
	descriptors, err := connections.Descriptors()
	if err != nil {
		return err
	}
	const least = 4
	switch most := descriptors - descriptors/8; {
	case w.connections == 0:
		w.connections = max(least, min(descriptors/2, maxConnections))
	case w.connections < least:
		return fmt.Errorf("--max-connections %d: want at least %d", w.connections, least)
	case w.connections > most:
		return fmt.Errorf("--max-connections %d: the process may have %d files open, so want %d at most; raise its limit (ulimit -n, LimitNOFILE= of a unit)", w.connections, descriptors, most)
	}
	return nil
}

// check fails if the flags for TLS do not fit together or the certificate cannot be read.
func (w *web) check() error {
	if err := w.checkConnections(); err != nil {
		return err
	}
	if (w.cert == "") != (w.key == "") {
		return errors.New("--tls-cert and --tls-key need each other")
	}
	if w.cert == "" {
		return nil
	}
	if _, err := loadPair(w.cert, w.key); err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	return nil
}

// site is one address on which the process serves.
type site struct {
	*http.Server

	listener net.Listener
}

// serve serves until ctx ends. swept is the number of unfinished uploads that the start removed.
func (w *web) serve(ctx context.Context, config server.Config, swept int) error {
	config.MaxRequestsOfUser = (w.connections + 1) / 2
	service := server.New(config)
	sites, address, err := w.open(ctx, config, service)
	if err != nil {
		return err
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "serving",
		slog.String("address", address), slog.String("default_permission", string(config.DefaultPermission)),
		slog.Int("unfinished_uploads_removed", swept), slog.Int("max_connections", w.connections))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return service.Run(ctx) })
	for _, one := range sites {
		g.Go(func() error {
			if err := one.Serve(one.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
		g.Go(func() error { return w.stop(ctx, one.Server) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	return nil
}

// open opens the addresses of the service and of its metrics. address is the service's.
func (w *web) open(ctx context.Context, config server.Config, service *server.Server) (sites []site, address string, err error) {
	open, err := listen(ctx, w.listen)
	if err != nil {
		return nil, "", err
	}
	limits, scheme := w.limits(config.BehindProxy), "http"
	limits.Full = tellFull(ctx, config.Log, w.connections)
	guard := connections.New(open, limits)
	one := site{w.site(config, guard, service.Handler(), func(r *http.Request) bool { return r.URL.Path == "/healthz" }), guard}
	if w.cert != "" {
		pair := keyPair{cert: w.cert, key: w.key, log: config.Log}
		one.listener = tls.NewListener(guard, &tls.Config{GetCertificate: pair.current, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		scheme = "https"
	}
	sites, address = []site{one}, scheme+"://"+open.Addr().String()
	if w.metrics == "" {
		return sites, address, nil
	}
	open, err = listen(ctx, w.metrics)
	if err != nil {
		return nil, "", errors.Join(err, one.listener.Close())
	}
	guard = connections.New(open, connections.Limits{All: min(metricsConnections, w.connections), Spare: 1, RetryAfter: busyRetry})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", service.MetricsHandler())
	return append(sites, site{w.site(config, guard, mux, func(*http.Request) bool { return true }), guard}), address, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// limits are those of the connections to the service.
func (w *web) limits(behindProxy bool) connections.Limits {
	limits := connections.Limits{All: w.connections, OfAddress: w.connections - w.connections/4, Spare: min(spareConnections, (w.connections+3)/4), RetryAfter: busyRetry}
	if behindProxy { // all connections are the proxy's
		limits.OfAddress = limits.All
	}
	return limits
}

// tellFull returns a function that logs, now and then, that connections are refused.
func tellFull(ctx context.Context, log *slog.Logger, most int) func() {
	pace := rate.NewLimiter(rate.Every(time.Minute), 1)
	return func() {
		if pace.Allow() {
			log.LogAttrs(ctx, slog.LevelWarn, "all connections are in use: requests are refused", slog.Int("max_connections", most))
		}
	}
}

// site serves a handler on the connections of a guard. Requests for which always is true are served even if there are too
// many connections.
func (*web) site(config server.Config, guard *connections.Guard, handler http.Handler, always func(*http.Request) bool) *http.Server {
	return &http.Server{
		Handler: guard.Handler(handler, always), ConnContext: guard.ConnContext,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
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

// loadPair reads a certificate and its key. It refuses a key that others can read.
func loadPair(cert, key string) (tls.Certificate, error) {
	chain, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	secret, err := strictmodes.ReadSecret("TLS key", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return pair, fmt.Errorf("read certificate and key: %w", err)
	}
	return pair, nil
}

// current returns the certificate in the files, or the last good one.
func (k *keyPair) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.cert)
	if err == nil && !info.ModTime().Equal(k.read) {
		var pair tls.Certificate
		if pair, err = loadPair(k.cert, k.key); err == nil {
			k.loaded, k.read = &pair, info.ModTime()
		}
	}
	failures.Log(context.Background(), k.log, "read the certificate", err)
	if k.loaded == nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return k.loaded, nil
}
