package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completion offers the words that may complete a begun one.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completeWith returns a completion that asks the server. It does not prompt the user, and does not wait
// long for the server.
func (c *cli) completeWith(names func(ctx context.Context, begun string) ([]string, error)) completion {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		c.quiet = true
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		all, err := names(ctx, begun)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		// A dependency is KEY:BUNDLE.
		before := begun[:strings.LastIndexByte(begun, ':')+1]
		var fitting []string
		for _, name := range all {
			if strings.HasPrefix(before+name, begun) {
				fitting = append(fitting, before+name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeEach returns a completion that offers a name of each thing that the server lists.
func completeEach[T any](c *cli, list func(*workspace, context.Context) ([]T, error), name func(T) string) completion {
	return c.completeWith(func(ctx context.Context, _ string) ([]string, error) {
		at, err := c.workspace("")
		if err != nil {
			return nil, err
		}
		all, err := list(at, ctx)
		var names []string
		for _, one := range all {
			names = append(names, name(one))
		}
		return names, err
	})
}

// completeBundles offers the names of the bundles on the current worksheet, and their uuids once one is
// begun.
func (c *cli) completeBundles(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return c.completeWith(func(ctx context.Context, begun string) ([]string, error) {
		w, _, err := c.worksheetBundles(ctx, "", "name")
		if err != nil {
			return nil, err
		}
		var names []string
		for _, b := range w.Bundles {
			names = append(names, b.Metadata.String("name"))
			if strings.HasPrefix(begun[strings.LastIndexByte(begun, ':')+1:], "0") {
				names = append(names, b.UUID)
			}
		}
		return names, nil
	})(cmd, args, begun)
}

// completeWorksheets offers the names of worksheets: the user's own first, as the server sorts them.
func (c *cli) completeWorksheets(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return c.completeWith(func(ctx context.Context, begun string) ([]string, error) {
		at, err := c.workspace("")
		if err != nil {
			return nil, err
		}
		found, err := at.SearchWorksheets(ctx, "name="+begun+"%", ".limit=50")
		var names []string
		for _, w := range found {
			names = append(names, w.Name)
		}
		return names, err
	})(cmd, args, begun)
}

// completeGroups offers the names of the user's groups.
func (c *cli) completeGroups(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeEach(c, (*workspace).Groups, func(name string) string { return name })(cmd, args, begun)
}

// completeInTurn completes argument i with list[i], and further arguments with the last completion.
func completeInTurn(list ...completion) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return list[min(len(args), len(list)-1)](cmd, args, begun)
	}
}

// completeAny offers the words of all completions in list.
func completeAny(list ...completion) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, one := range list {
			some, _ := one(cmd, args, begun)
			all = append(all, some...)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWords offers fixed words.
func completeWords(words ...string) completion {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}
