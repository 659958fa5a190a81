package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/notify"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The ways of --notify.
const (
	byTerminal = "terminal"
	byWebhook  = "webhook"
	byMail     = "mail"
)

func waysToNotify() []string { return []string{byTerminal, byWebhook, byMail} }

// inWords is a list of alternatives.
func inWords(list []string) string {
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

const notifyHelp = `--notify tells you when the wait is over, besides what cl prints. It may be repeated:

  --notify terminal   the bell, and a notification of the desktop, if the terminal knows
                      the sequence OSC 9 or 777; in tmux with allow-passthrough on
  --notify webhook    a message {"text": …} to a Slack, Mattermost or Discord (URL/slack).
                      The URL is a secret: cl reads it from CL_NOTIFY_WEBHOOK, or from the
                      file notify-webhook in ~/.codalab, which only you may read
  --notify mail       a mail from the server when all have ended, also if your computer
                      is off by then; see cl help notify`

// notifyFlag adds --notify.
func notifyFlag(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringSliceVar(to, "notify", nil, "tell you at the end, `HOW`: "+inWords(waysToNotify()))
	_ = cmd.RegisterFlagCompletionFunc("notify", completeWords(waysToNotify()...)) // the flag is there
}

// notifier tells the user the end of a wait. The zero value tells nothing.
type notifier struct {
	// waited names the bundles of the wait.
	waited string
	screen io.Writer
	hook   *notify.Webhook
	// mail lets the server send a mail.
	mail bool
}

// notifier returns the one for some ways. It fails before the wait for what cannot work.
func (c *cli) notifier(ways, specs []string) (n notifier, err error) {
	n.waited = termtext.OneLine(strings.Join(specs, " "))
	if most := 60; len(n.waited) > most {
		n.waited = termtext.Count(len(specs), "bundle")
	}
	for _, way := range ways {
		switch way {
		case byTerminal:
			if n.screen = c.ownTerminal(); n.screen == nil {
				return n, refusef("--notify terminal needs a terminal, and neither the output nor the errors come to one; --notify webhook needs none")
			}
		case byWebhook:
			if n.hook, err = c.webhook(); err != nil {
				return n, err
			}
		case byMail:
			n.mail = true
		default:
			return n, refusef("--notify %s: want %s%s", termtext.OneLine(way), inWords(waysToNotify()),
				argparse.DidYouMean("", argparse.Nearest(way, waysToNotify())))
		}
	}
	return n, nil
}

// ownTerminal is the terminal of the command, without escapes; nil if it has none.
func (c *cli) ownTerminal() io.Writer {
	for _, stream := range []io.Writer{c.Stderr, c.Stdout} {
		if _, ok := terminal(stream); ok {
			return termtext.Raw(stream)
		}
	}
	return nil
}

// webhook reads the address to which messages are sent.
func (c *cli) webhook() (*notify.Webhook, error) {
	address, from := c.Getenv("CL_NOTIFY_WEBHOOK"), "CL_NOTIFY_WEBHOOK"
	if address == "" {
		home, err := c.home()
		if err != nil {
			return nil, err
		}
		from = filepath.Join(home, "notify-webhook")
		if address, err = readPrivate(from); err != nil {
			return nil, err
		}
	}
	hook, err := notify.NewWebhook(address, nil)
	if err != nil {
		return nil, refusef("%s: %v", from, err)
	}
	return hook, nil
}

// readPrivate reads a file that others may not read.
func readPrivate(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", refusef("--notify webhook needs the URL of a webhook in CL_NOTIFY_WEBHOOK, or in the file %s, with the mode 0600", path)
	case err != nil:
		return "", fmt.Errorf("read the webhook: %w", err)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows": // which has no such modes
		return "", refusef("others may read %s, and so send messages in your name: chmod 600 %s", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the webhook: %w", err)
	}
	return string(text), nil
}

// mostNamed is the number of bundles that a message names.
const mostNamed = 10

// ended tells that a wait is over. bundles are those with their last known states. err is the reason for which the wait
// ended without them; nil if it did not. A failure to tell is said, and is no failure of the command.
func (n notifier) ended(ctx context.Context, c *cli, bundles []codalab.Bundle, err error) {
	if ctx.Err() != nil { // the user has ended it
		return
	}
	lines := n.text(bundles)
	if err != nil {
		lines = []string{"cl wait " + n.waited + " gave up: " + termtext.OneLine(explain(err).Error())}
	}
	if n.screen != nil {
		_, _ = io.WriteString(n.screen, notify.Sequence(c.Getenv, lines[0])) // only a display
	}
	if n.hook != nil {
		if err := n.hook.Send(ctx, strings.Join(lines, "\n")); err != nil {
			c.warn("cl: the webhook got no message: %v", err)
		}
	}
}

// text has a line about all bundles, and one for each that is not ready.
func (n notifier) text(bundles []codalab.Bundle) []string {
	if len(bundles) == 1 {
		return []string{endText(bundles[0])}
	}
	var all tally.Tally
	var rest []string
	for _, b := range bundles {
		all.Add(b.State)
		if ended(b.State) && b.State != codalab.StateReady {
			rest = append(rest, endText(b))
		}
	}
	if more := len(rest) - mostNamed; more > 0 {
		rest = append(rest[:mostNamed], fmt.Sprintf("… and %d more", more))
	}
	return slices.Concat([]string{n.waited + ": " + all.String()}, rest)
}

// endText is a sentence about the end of a bundle: "train(0x391c0e) failed: …".
func endText(b codalab.Bundle) string {
	text := termtext.OneLine(cmp.Or(b.Metadata.String("name"), "bundle")) + "(" + b.UUID[:min(8, len(b.UUID))] + ") "
	if err := exitError(b); err != nil {
		return text + err.Error()
	}
	return text + "ready"
}
