// Command demoimage makes the container image of the demo from Debian's packages and
// serves it from a registry on this machine, so that the demo needs neither an
// account nor a public registry.
//
// The image is a small Debian with Python. mmdebstrap makes it once; it is kept, and
// serving it takes a moment.
//
//	demoimage serve --ready-file FILE     make the image if it is missing; serve it until TERM
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := serve(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demoimage:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "serve" {
		return errors.New("usage: demoimage serve [flags]")
	}
	s := server{out: os.Stdout}
	flags := flag.NewFlagSet("demoimage serve", flag.ContinueOnError)
	dir := flags.String("dir", "/var/tmp/cl-slurm/demoimage", "where the image is kept")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:5077", "loopback `address` to serve on; port 0 takes a free one")
	flags.StringVar(&s.readyFile, "ready-file", "", "`file` to write the image's name to, once it can be pulled")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	var err error
	if s.layout, err = ensureImage(ctx, *dir, s.out); err != nil {
		return err
	}
	return s.run(ctx)
}
