package program

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/manual"
)

// ManCommand returns the hidden command that writes the manual pages of its program. Releases
// call it.
func ManCommand(p Process) *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages", Hidden: true,
		Long: `Write the manual pages of the program and its commands into a directory. They have
the date of SOURCE_DATE_EPOCH, or today's.`,
		Args: WrongUsage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			date := p.Now()
			if text := p.Getenv("SOURCE_DATE_EPOCH"); text != "" {
				seconds, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return Usage(fmt.Errorf("SOURCE_DATE_EPOCH: %w", err))
				}
				date = time.Unix(seconds, 0)
			}
			version, _ := build()
			return manual.Source{Version: version, Date: date}.Write(args[0], cmd.Root())
		},
	}
}
