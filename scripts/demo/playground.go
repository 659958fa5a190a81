package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// keepUp keeps a site up until ctx ends, and prints suggestions. The file at path makes a
// shell a client of the site; the lock on it shows that the site is up. There is only one
// such site at a time: if it is up already, keepUp only prints the suggestions.
func keepUp(ctx context.Context, out io.Writer, path, image string) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return printLines(out, path, "The playground is up already, or about to be.", "Ctrl-C where it was started ends it.")
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	if _, err := fmt.Fprintln(out, "Starting an image registry, a CodaLab server and a bridge."); err != nil {
		return err
	}
	site, err := testsite.Start(ctx, testsite.Options{Image: image})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	if err := errors.Join(file.Truncate(0), site.WriteExports(file)); err != nil {
		return err
	}
	if err := printLines(out, path, "The playground is up.", "Ctrl-C here ends it, with its jobs and its files."); err != nil {
		return err
	}
	<-ctx.Done()
	_, err = fmt.Fprintln(out, "\nEnding the playground.")
	return err
}

func printLines(out io.Writer, path, first, last string) error {
	_, err := fmt.Fprintf(out, `
%s In another terminal, try:

  . %s
  cl run 'echo hello from $(hostname)' -n hello && cl wait --tail hello
  cl run 'ls /dev/nvidia[0-9]*' -n gpus --request-queue gpu --request-gpus 2 && cl wait --tail gpus

%s
`, first, path, last)
	return err
}
