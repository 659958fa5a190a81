package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeBundles offers the names of the bundles on the current worksheet. It does not prompt
// the user, and does not wait long for the server.
func (c *cli) completeBundles(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	c.quiet = true
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	w, _, err := c.worksheetBundles(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, b := range w.Bundles {
		for _, name := range []string{b.Metadata.String("name"), b.UUID} {
			if begun != "" && strings.HasPrefix(name, begun) || begun == "" && name != b.UUID {
				names = append(names, name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
