package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const editHelp = `Change a bundle's metadata.

  edit <bundle> -n <name> -T <tag>... -d <description>
  edit <bundle> -f request_priority 5   any other field
  edit <bundle> --freeze                nobody can change it, until --unfreeze
  edit <bundle>                         edit the metadata in $EDITOR

A change of a request has no effect on a run that has begun.`

// editCommand is bundle_cli.py: do_edit_command.
func (c *cli) editCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "edit <bundle>", Aliases: []string{"e"}, Short: "Change a bundle's name, tags and other metadata", Long: editHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	name := cmd.Flags().StringP("name", "n", "", "new name")
	tags := argparse.WordsFlag(cmd.Flags(), "tags", "T", "new tags; none removes them all")
	description := cmd.Flags().StringP("description", "d", "", "new description")
	field := argparse.WordsFlag(cmd.Flags(), "field", "f", "change this field to this value: two words")
	field.Count = 2
	object := c.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		frozen, anonymous, err := object()
		if err != nil {
			return err
		}
		given := cmd.Flags().Changed
		metadata := codalab.Metadata{}
		if given("name") {
			if err := checkName(*name); err != nil {
				return err
			}
			metadata["name"] = *name
		}
		if given("tags") {
			metadata["tags"] = append([]string{}, tags.List...)
		}
		if given("description") {
			metadata["description"] = *description
		}
		for pair := range slices.Chunk(field.List, 2) {
			if metadata[pair[0]], err = readField(pair[0], pair[1]); err != nil {
				return err
			}
		}
		edit := codalab.BundleEdit{Metadata: metadata, Frozen: frozen, IsAnonymous: anonymous}
		return c.editBundle(cmd.Context(), *worksheet, args[0], edit)
	}
	return cmd
}

// changeFlags adds the flags that bundles and worksheets have in common, and returns a function that
// reads them as fields of an edit.
func (c *cli) changeFlags(cmd *cobra.Command) func() (frozen json.RawMessage, anonymous *bool, err error) {
	freeze := cmd.Flags().Bool("freeze", false, "let nobody change it any more")
	unfreeze := cmd.Flags().Bool("unfreeze", false, "let it be changed again")
	hide := cmd.Flags().Bool("anonymous", false, "hide its owner from those who may not change it")
	show := cmd.Flags().Bool("not-anonymous", false, "show its owner")
	return func() (frozen json.RawMessage, anonymous *bool, err error) {
		switch {
		case *freeze && *unfreeze:
			return nil, nil, refusef("--freeze and --unfreeze exclude each other")
		case *hide && *show:
			return nil, nil, refusef("--anonymous and --not-anonymous exclude each other")
		}
		if *freeze {
			frozen = json.RawMessage(c.Now().UTC().Format(`"2006-01-02T15:04:05.000000"`))
		}
		if *unfreeze {
			frozen = json.RawMessage("null")
		}
		if *hide || *show {
			anonymous = hide
		}
		return frozen, anonymous, nil
	}
}

func (c *cli) editBundle(ctx context.Context, worksheet, spec string, edit codalab.BundleEdit) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, []string{spec})
	if err != nil {
		return err
	}
	b, err := at.Bundle(ctx, uuids[0])
	if err != nil {
		return err
	}
	if edit.Frozen == nil && edit.IsAnonymous == nil && len(edit.Metadata) == 0 {
		if edit.Metadata, err = c.editMetadata(ctx, b.Type, b.Metadata); err != nil {
			return err
		}
		if len(edit.Metadata) == 0 {
			return refusef("No change made; aborting")
		}
	}
	if err := checkRequests(edit.Metadata); err != nil {
		return err
	}
	c.warnOfSmallRequests(edit.Metadata)
	if err := codalab.CheckMetadata(b.Type, edit.Metadata, false); err != nil {
		return refusef("%v", err)
	}
	edit.Type = b.Type
	if _, err := at.UpdateBundles(ctx, client.BundleChange{UUID: b.UUID, BundleEdit: edit}); err != nil {
		return err
	}
	return c.printResult(named{b.UUID}, "Saved metadata for bundle %s.", b.UUID)
}

// readField reads the value of a field that a user may change, in the field's type.
func readField(key, text string) (any, error) {
	if key == codalab.SecretsKey {
		return nil, refusef("secrets cannot be edited: cl mimic --secret makes a run again with others")
	}
	for _, kind := range []string{codalab.TypeRun, codalab.TypeDataset, codalab.TypeMake} {
		for _, k := range codalab.MetadataKeys(kind) {
			switch {
			case k.Key == key && k.Generated:
				return nil, refusef("%s cannot be edited: the server sets it", key)
			case k.Key == key:
				return readValue(k, text)
			}
		}
	}
	return nil, refusef("there is no field %q%s", key, argparse.DidYouMean("", argparse.Nearest(key, metadataFields())))
}

// metadataFields are the keys of all bundles' metadata.
func metadataFields() []string {
	keys := []string{codalab.SecretsKey}
	for _, kind := range []string{codalab.TypeRun, codalab.TypeDataset, codalab.TypeMake} {
		for _, k := range codalab.MetadataKeys(kind) {
			if !slices.Contains(keys, k.Key) {
				keys = append(keys, k.Key)
			}
		}
	}
	return keys
}

// readValue reads a value of metadata that a user has typed.
func readValue(k codalab.MetadataKey, text string) (any, error) {
	var value any = text
	var err error
	switch k.Type {
	case codalab.TypeBool:
		value, err = strconv.ParseBool(strings.ToLower(text))
	case codalab.TypeInt:
		value, err = strconv.ParseInt(text, 10, 64)
	case codalab.TypeFloat:
		value, err = strconv.ParseFloat(text, 64)
	case codalab.TypeList:
		value = strings.Fields(text)
	case codalab.TypeSize:
		value, err = spellSize(text)
	case codalab.TypeDuration:
		value, err = spellDuration(text)
	default: // the other types are texts
	}
	if err != nil {
		return nil, refusef("%s cannot be %q: it is of type %s", k.Key, text, k.Type)
	}
	return value, nil
}

// editMetadata lets the user edit the metadata of a bundle of this type, which need not exist yet, and
// returns it (codalab/lib/metadata_util.py: request_missing_metadata).
func (c *cli) editMetadata(ctx context.Context, bundleType string, now codalab.Metadata) (codalab.Metadata, error) {
	var form strings.Builder
	fmt.Fprintf(&form, "// The metadata of the %s bundle. Save it and leave the editor.\n// Without a name nothing is done.\n", bundleType)
	for _, k := range codalab.MetadataKeys(bundleType) {
		if k.Generated {
			continue
		}
		text := ""
		if v := now[k.Key]; v != nil {
			text = codalab.PythonStr(v)
		}
		if k.Type == codalab.TypeList {
			text = strings.Join(now.Strings(k.Key), " ")
		}
		fmt.Fprintf(&form, "\n// %s\n%s: %s\n", cmp.Or(k.Help, k.Key), k.Key, strings.ReplaceAll(text, "\n", " "))
	}
	text, err := c.editText(ctx, ".txt", form.String())
	if err != nil {
		return nil, err
	}
	return readForm(bundleType, form.String(), text)
}

// readForm reads the edited form of editMetadata. It returns the fields that the user has changed.
func readForm(bundleType, form, text string) (codalab.Metadata, error) {
	before := map[string]bool{}
	for line := range strings.Lines(form) {
		before[strings.TrimSpace(line)] = true
	}
	m := codalab.Metadata{}
	isNamed := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		if before[line] {
			isNamed = isNamed || strings.HasPrefix(line, "name: ")
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, refusef("Malformatted line (no colon): %s", line)
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		i := slices.IndexFunc(codalab.MetadataKeys(bundleType), func(k codalab.MetadataKey) bool { return k.Key == key && !k.Generated })
		if i < 0 {
			return nil, refusef("there is no field %q%s", key, argparse.DidYouMean("", argparse.Nearest(key, metadataFields())))
		}
		k := codalab.MetadataKeys(bundleType)[i]
		if value == "" && k.Type != codalab.TypeList {
			m[key] = k.Default
			continue
		}
		v, err := readValue(k, value)
		if err != nil {
			return nil, err
		}
		m[key] = v
	}
	if !isNamed && m.String("name") == "" {
		return nil, refusef("No name specified; aborting")
	}
	return m, nil
}

// editText opens a text in the editor that EDITOR names, and returns the edited text. The text stays in
// a file until the command has succeeded: see keepDraft.
func (c *cli) editText(ctx context.Context, suffix, text string) (string, error) {
	editor := cmp.Or(c.Getenv("EDITOR"), c.Getenv("VISUAL"))
	if _, ok := terminal(c.Stdin); !ok && editor == "" {
		return "", refusef("there is no terminal for an editor: give the changes as flags")
	}
	file, err := writeTemporary(suffix, text)
	if err != nil {
		return "", err
	}
	c.draft = file
	// The editor handles interrupts itself: many people leave an editor's insert mode by Ctrl-C.
	err = c.Uninterrupted(func() error {
		return command.Command{
			Args: append(strings.Fields(cmp.Or(editor, defaultEditor)), file), Env: c.Environ,
			Stdin: c.Stdin, Stdout: termtext.Raw(c.Stdout), Stderr: termtext.Raw(c.Stderr),
		}.Run(context.WithoutCancel(ctx))
	})
	if err != nil {
		return "", fmt.Errorf("edit: %w; EDITOR names another editor", err)
	}
	edited, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("edit: %w", err)
	}
	if string(edited) == text {
		c.keepDraft(nil)
	}
	return string(edited), nil
}

// keepDraft removes the file with the user's text if the command succeeded, else it prints the file's
// path.
func (c *cli) keepDraft(failure error) {
	if c.draft == "" {
		return
	}
	if failure != nil {
		c.warn("Your text is in %s.", c.draft)
	} else if err := os.Remove(c.draft); err != nil {
		c.warn("cl: %v", err)
	}
	c.draft = ""
}

func writeTemporary(suffix, text string) (string, error) {
	f, err := os.CreateTemp("", "cl-*"+suffix)
	if err != nil {
		return "", fmt.Errorf("edit: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("edit: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// readFile reads a file of the user's, or standard input if its name is "-".
func (c *cli) readFile(ctx context.Context, name string) (string, error) {
	if name == "-" {
		return readAllText(interruptible.Pipe(ctx, c.Stdin))
	}
	f, err := os.Open(name)
	if err != nil {
		return "", refusef("%v", err)
	}
	text, err := readAllText(f)
	return text, errors.Join(err, f.Close())
}

// readAllText reads a text to its end.
func readAllText(r io.Reader) (string, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("read input: %w", err)
	}
	return string(data), nil
}
