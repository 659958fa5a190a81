package main

import (
	"strconv"

	"github.com/spf13/cobra"
)

// writeCommand is bundle_cli.py: do_write_command.
func (c *cli) writeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "write <bundle>/<file> <text>", Short: "Write a small file into a running bundle",
		Long: "Write a text to a file in the working directory of a running bundle, which its command\n" +
			"may read. The file's name has letters, digits, dots, dashes and underscores.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		if err := at.WriteToBundle(cmd.Context(), target, args[1]); err != nil {
			return err
		}
		return c.printUUID(target.BundleUUID)
	}
	return cmd
}

// netcatCommand is bundle_cli.py: do_netcat_command.
func (c *cli) netcatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "netcat <bundle> <port> [---] <message>", Short: "Send a message to a port of a running bundle",
		Long: "Send a message to a TCP port of a running bundle, and print what comes back. Runs on a\n" +
			"Slurm cluster take no connections.",
		Args: cobra.ExactArgs(3), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	file := cmd.Flags().StringP("file", "f", "", "add this file to the end of the message")
	cmd.Flags().Bool("verbose", false, "has no effect")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		port, err := strconv.Atoi(args[1])
		if err != nil || port < 1 || port > 65535 {
			return commandLineError(cmd, notAPort(args[1]))
		}
		message := args[2]
		if *file != "" {
			text, err := c.readFile(cmd.Context(), *file)
			if err != nil {
				return err
			}
			message += text
		}
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		answer, err := at.Netcat(cmd.Context(), target.BundleUUID, port, message)
		if err != nil {
			return err
		}
		if c.asJSON {
			return c.printJSON(map[string]string{"uuid": target.BundleUUID, "answer": string(answer)})
		}
		_, err = contentsTo(c.Stdout).Write(answer)
		return err
	}
	return cmd
}

func notAPort(text string) error {
	return refusef("%q is no port: want a number from 1 to 65535", text)
}
