package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Time limits of connections. Bodies have none: uploads and downloads may have any size.
const (
	headerTimeout   = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 20 * time.Second
)

func runCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at place
	var listen string
	config := server.Config{Log: slog.New(slog.NewTextHandler(p.Stderr, nil)), Now: p.Now}
	cmd := &cobra.Command{
		Use: "run --data DIRECTORY", Short: "Serve until a signal comes", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Serve until a signal comes. After TERM or INT the server waits at most 20 seconds
for requests under way. Connections are not encrypted: for clients on other
machines, put a proxy with TLS in front of the server.`,
		RunE: func(_ *cobra.Command, _ []string) error {
			return at.withStore(ctx, func(data *store.Store) error {
				if err := checkLinkRoots(config.LinkRoots, at.dir); err != nil {
					return program.Usage(err)
				}
				config.Store = data
				return serve(ctx, config, listen)
			})
		},
	}
	at.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:2900", "the `address` to serve on")
	f.StringVar(&config.DefaultCPUImage, "default-cpu-image", "codalab/default-cpu", "the Docker `image` of runs that name none")
	f.StringVar(&config.DefaultGPUImage, "default-gpu-image", "codalab/default-gpu", "the Docker `image` of runs with GPUs that name none")
	f.StringArrayVar(&config.LinkRoots, "link-root", nil, "a `directory` to which bundles may link (cl upload --link), readable for everybody with a login; may be repeated")
	f.BoolVar(&config.SharedDisk, "shared-disk", false, "let workers that share this disk (cl-worker --shared-file-system, cl-bridge's server_store) use contents in place")
	f.DurationVar(&config.Hold, "check-in-hold", 5*time.Second, "how `long` a worker's check-in waits for messages")
	f.DurationVar(&config.WorkerTimeout, "worker-timeout", time.Minute, "how `long` after its last check-in a worker counts as gone")
	return cmd
}

// checkLinkRoots refuses directories that would show the server's own data, or the whole
// machine, to everybody.
func checkLinkRoots(roots []string, data string) error {
	data, err := filepath.EvalSymlinks(data)
	if err == nil {
		data, err = filepath.Abs(data)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for i, root := range roots {
		if !filepath.IsAbs(root) {
			return fmt.Errorf("--link-root %s: want an absolute path", root)
		}
		roots[i] = filepath.Clean(root)
		target, err := filepath.EvalSymlinks(root)
		if err != nil {
			return fmt.Errorf("--link-root: %w", err)
		}
		for _, own := range []string{data, "/proc", "/sys", "/dev"} {
			if subpath.Within(target, own) || subpath.Within(own, target) {
				return fmt.Errorf("--link-root %s: %s would be open to everybody", root, own)
			}
		}
	}
	return nil
}

func serve(ctx context.Context, config server.Config, listen string) error {
	unlock, err := config.Store.Lock(ctx)
	if err != nil {
		return err
	}
	removed, err := config.Store.Sweep(ctx)
	if err == nil {
		err = listenAndServe(ctx, config, listen, removed)
	}
	return errors.Join(err, unlock())
}

func listenAndServe(ctx context.Context, config server.Config, listen string, swept int) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "serving",
		slog.String("address", "http://"+listener.Addr().String()), slog.Int("unfinished_uploads_removed", swept))
	service := server.New(config)
	site := &http.Server{
		Handler: service.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return service.Run(ctx) })
	g.Go(func() error {
		if err := site.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := site.Shutdown(ending); err != nil {
			return errors.Join(fmt.Errorf("end requests under way: %w", err), site.Close())
		}
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	config.Log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	return nil
}
