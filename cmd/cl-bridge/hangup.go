package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// reloadSignals returns a channel that receives at each SIGHUP. The signal also says that the terminal of a bridge has gone:
// the returned context ends then, as the process would without this channel. A bridge that was started to ignore SIGHUP
// (nohup) does not end. stop ends the listening.
func reloadSignals(ctx context.Context) (_ context.Context, asked <-chan os.Signal, stop func()) {
	mayEnd := !signal.Ignored(syscall.SIGHUP) && hasTerminal()
	ctx, end := context.WithCancel(ctx)
	signals, asks := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	ended := background.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if mayEnd && !hasTerminal() {
					end()
					return
				}
				select {
				case asks <- s:
				default: // one that waits is enough
				}
			}
		}
	})
	return ctx, asks, func() {
		signal.Stop(signals)
		end()
		<-ended
	}
}

// hasTerminal reports whether the process has a controlling terminal, which a service has not.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = f.Close() // only opened
	return true
}
