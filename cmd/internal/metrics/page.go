// Package metrics gives the counts of a program to Prometheus: on an address, or in a file for the textfile collector of
// node_exporter.
//
// Package registry makes a page of the metrics of Prometheus' own library, and NewPage one of a text, for programs that
// have to be small.
package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/connections"
	"github.com/cl-slurm/cl-slurm/internal/exposition"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Page has the counts of a program.
type Page struct {
	// Address is where they are served, and File where they are written; empty for nowhere.
	Address, File string
	Log           *slog.Logger
	// Handler answers GET /metrics.
	Handler http.Handler
	// Write writes a file: readers see an old or a new one, never a part.
	Write func(path string) error

	listener net.Listener
}

// NewPage returns a page with the metrics that add adds to a text. Each has the labels of the text, which distinguish the
// programs of one host: node_exporter refuses two files with the same names and labels. prefix begins the names, such as
// cl_worker_manager_, and that of the build's version.
func NewPage(prefix string, labels [][2]string, log *slog.Logger, add func(t *exposition.Text)) *Page {
	text := func() []byte {
		t := exposition.Text{Labels: labels}
		t.Add(exposition.Desc{Name: prefix + "build_info", Help: BuildHelp, Kind: exposition.Gauge, Labels: []string{"goversion", "version"}}, 1, runtime.Version(), program.Version())
		add(&t)
		var out bytes.Buffer
		_, _ = t.WriteTo(&out) // a buffer takes everything
		return out.Bytes()
	}
	return &Page{
		Log: log,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", exposition.ContentType)
			_, _ = w.Write(text()) // the scraper is gone
		}),
		Write: func(path string) error { return atomicfile.Write(path, text(), 0o644) },
	}
}

// BuildHelp is the help of the metric with the build's version.
const BuildHelp = "1, with the version of the build and of Go."

// Around serves and writes the page while work runs. It fails without work if the address cannot be opened or the file
// cannot be written.
func (p *Page) Around(ctx context.Context, work func() error) error {
	if err := p.Open(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := background.Go(func() { p.Run(ctx) })
	err := work()
	stop()
	<-ended
	return err
}

// Open opens the address, and tries to write the file, so that a mistake is known at the start.
func (p *Page) Open(ctx context.Context) error {
	if p.File != "" {
		if err := p.write(); err != nil {
			return err
		}
	}
	if p.Address == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.Address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	p.listener = l
	p.Log.InfoContext(ctx, "serving metrics", slog.String("address", "http://"+l.Addr().String()+"/metrics"))
	return nil
}

// writeEvery is the pause between two writings of the file: node_exporter reads it about as often.
const writeEvery = 15 * time.Second

// Run serves and writes until ctx ends, after Open. At the end it removes the file: its numbers are nobody's then.
func (p *Page) Run(ctx context.Context) {
	var g errgroup.Group
	if p.listener != nil {
		g.Go(func() error { p.serve(ctx); return nil })
	}
	if p.File != "" {
		g.Go(func() error { p.keepWriting(ctx); return nil })
	}
	_ = g.Wait() // both have logged their errors
}

func (p *Page) keepWriting(ctx context.Context) {
	failed := false
	for pause.For(ctx, writeEvery) == nil {
		err := p.write()
		if err != nil && !failed {
			p.Log.WarnContext(ctx, "cannot write the metrics; the program tries again", slog.Any("error", err))
		}
		failed = err != nil
	}
	if err := os.Remove(p.File); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Log.WarnContext(ctx, "cannot remove the metrics", slog.Any("error", err))
	}
}

func (p *Page) write() error {
	if err := p.Write(p.File); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// Limits of the address: a few scrapers at a time, and none that sends slowly.
const (
	mostConnections = 16
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
	mostHeader      = 16 << 10
	busyRetry       = 5 * time.Second
	closeWithin     = 5 * time.Second
)

func (p *Page) serve(ctx context.Context) {
	guard := connections.New(p.listener, connections.Limits{All: mostConnections, Spare: 1, RetryAfter: busyRetry})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.Handler)
	server := &http.Server{
		Handler: guard.Handler(mux, func(*http.Request) bool { return true }), ConnContext: guard.ConnContext,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
	stopped := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // its clients are gone or hang
		}
	})
	defer stopped()
	if err := server.Serve(guard); !errors.Is(err, http.ErrServerClosed) {
		p.Log.WarnContext(ctx, "metrics are served no longer", slog.Any("error", err))
	}
}
