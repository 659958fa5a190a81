// Command demoimage makes the container image of the demo from Debian's
// packages and serves it from a registry on this machine, so that the demo
// needs neither an account nor a public registry.
//
// The image is a small Debian with Python. It is built once, with mmdebstrap,
// and kept; from then on serving it takes a moment.
//
//	demoimage build                       make the image, if it is not there yet
//	demoimage serve --ready-file FILE     make it, then serve it until TERM
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	defaultDir    = "/var/tmp/cl-slurm/demoimage"
	defaultListen = "127.0.0.1:5077"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newCommand(os.Stdout).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demoimage:", err)
		stop()
		os.Exit(1)
	}
}

// newCommand returns the command line, which reports to out.
func newCommand(out io.Writer) *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "demoimage",
		Short:         "Make the demo's container image and serve it on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&dir, "dir", defaultDir, "where the image is kept")

	root.AddCommand(&cobra.Command{
		Use:   "build",
		Short: "Make the image, if it is not there yet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kept, err := ensureImage(cmd.Context(), dir, out)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, kept); err != nil {
				return fmt.Errorf("build image: %w", err)
			}
			return nil
		},
	})

	var s server
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Serve the image until interrupted, after making it if need be",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kept, err := ensureImage(cmd.Context(), dir, out)
			if err != nil {
				return err
			}
			s.layout, s.out = kept, out
			return s.run(cmd.Context())
		},
	}
	serve.Flags().StringVar(&s.listen, "listen", defaultListen, "loopback `address` to serve on; port 0 takes a free one")
	serve.Flags().StringVar(&s.readyFile, "ready-file", "", "`file` to write the image's name to, once it can be pulled")
	root.AddCommand(serve)
	return root
}
