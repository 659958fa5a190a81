package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// makeCommand is bundle_cli.py: do_make_command.
func (c *cli) makeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "make [<key>:]<bundle>[/<path>]...", Short: "Make a bundle of parts of others",
		Long: `Make a bundle of parts of other bundles, and print its uuid. The parts are
copied on the server.

  make <bundle>/<path>          a copy of that file or directory
  make a:<bundle> b:<bundle>/x  a directory that has a and b`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	read := metadataFlags(cmd.Flags(), codalab.TypeMake)
	edit := cmd.Flags().BoolP("edit", "e", false, "edit the metadata in $EDITOR first")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.makeBundle(cmd.Context(), *worksheet, args, read(), *edit)
	}
	return cmd
}

func (c *cli) makeBundle(ctx context.Context, worksheet string, specs []string, m codalab.Metadata, edit bool) error {
	targets, err := makeTargets(specs)
	if err != nil {
		return err
	}
	if m.String("name") == "" {
		m["name"] = makeName(specs)
	}
	if err := c.checkNew(ctx, codalab.TypeMake, m, edit); err != nil {
		return err
	}
	at, uuid, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	deps, err := at.dependencies(ctx, targets)
	if err != nil {
		return err
	}
	made, err := c.create(ctx, at, client.NewBundle{Worksheet: uuid, Type: codalab.TypeMake, Metadata: m, Dependencies: deps})
	if err != nil {
		return err
	}
	return c.printUUID(made)
}

// makeTargets reads the parts of a make bundle.
func makeTargets(specs []string) ([]codalab.Input, error) {
	var targets []codalab.Input
	for _, spec := range specs {
		in, _, err := codalab.ParseInput(spec)
		if err != nil {
			return nil, err
		}
		for _, other := range targets {
			switch {
			case other.Key == in.Key && in.Key == "":
				return nil, refusef("Must specify keys when packaging multiple targets!")
			case other.Key == in.Key:
				return nil, refusef("Duplicate key: %s", in.Key)
			}
		}
		targets = append(targets, in)
	}
	return targets, codalab.CheckKeys(targets)
}

// makeName is a make bundle's name unless its user gives one (codalab/lib/metadata_defaults.py:
// get_default_name).
func makeName(specs []string) string {
	if len(specs) == 1 && !strings.Contains(specs[0], ":") {
		return specs[0][strings.LastIndexByte(specs[0], '/')+1:]
	}
	return defaultName(codalab.TypeMake, strings.Join(specs, " "))
}
