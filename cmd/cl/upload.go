package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const uploadHelp = `Create a bundle from files, a text or a URL, and print its uuid.

  cl upload <path>      a file, or a directory with all of its contents
  cl upload <path>...   a directory of these files and directories
  cl upload -c <text>   a file with this text
  cl upload -           a file with the bytes of standard input; -n names it
  cl upload <url>       the contents of the URL, which the server fetches
  cl upload -g <url>    the files of a git repository's newest commit
  cl upload -l <path>   a link to data, which runs read in place

The server unpacks an archive (.tar.gz, .tgz, .tar.bz2, .zip, .gz, .bz2), unless
-p is given; that of standard input or a URL, too, by its name. Patterns are
those of tar --exclude; -i names a file of patterns that any directory may have,
which are those of tar --exclude-ignore. cl never uploads its own directory, which
has your logins. With -l cl sends nothing and copies nothing: the path must exist
on the machines of the runs, not necessarily on this one.

If an upload fails or is interrupted, cl removes the bundle again.`

// uploadCommand is bundle_cli.py: do_upload_command.
func (c *cli) uploadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "upload <path>... | - | -c <text> | <url> | -l <path>",
		Aliases: []string{"up"},
		Short:   "Create a bundle from files, a text or a URL",
		Long:    uploadHelp,
	}
	var u upload
	u.cli = c
	worksheet := c.worksheetFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&u.text, "contents", "c", "", "the text of the bundle")
	flags.BoolVarP(&u.follow, "follow-symlinks", "L", false, "send the targets of symbolic links")
	exclude := argparse.WordsFlag(flags, "exclude-patterns", "x", "leave out files with matching names")
	flags.BoolVarP(&u.git, "git", "g", false, "the URL is a git repository")
	flags.BoolVarP(&u.pack, "pack", "p", false, "keep an archive as it is")
	flags.BoolVarP(&u.compress, "force-compression", "z", false, "compress a file on its way, for a slow network")
	flags.StringVarP(&u.ignore, "ignore", "i", "", "leave out the entries that each directory's `file` of this name lists")
	flags.BoolVarP(&u.link, "link", "l", false, "send nothing: the bundle is a link to the path")
	flags.BoolVarP(&u.azure, "use-azure-blob-beta", "a", false, "have the server keep it in Azure Blob Storage, if it can")
	flags.BoolVarP(&u.edit, "edit", "e", false, "edit the metadata in $EDITOR first")
	metadata := metadataFlags(flags, codalab.TypeDataset)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u.paths, u.metadata, u.exclude = args, metadata(), exclude.List
		u.isText = cmd.Flags().Changed("contents")
		return u.run(cmd.Context(), *worksheet)
	}
	return cmd
}

// upload is one call of `cl upload`.
type upload struct {
	*cli
	paths    []string // absolute after checkCommandLine, but for a URL and standardInput
	text     string
	isText   bool
	follow   bool
	exclude  []string
	ignore   string
	git      bool
	pack     bool
	compress bool
	link     bool
	azure    bool
	edit     bool
	metadata codalab.Metadata
}

// standardInput is the path that means it.
const standardInput = "-"

func (u *upload) run(ctx context.Context, worksheet string) error {
	if err := u.checkCommandLine(); err != nil {
		return err
	}
	if u.link {
		return u.createLink(ctx, worksheet)
	}
	p, err := u.prepare()
	if err != nil {
		return err
	}
	at, sheet, err := u.prepareMetadata(ctx, worksheet)
	if err != nil {
		return err
	}
	if err := p.measure(ctx); err != nil {
		return err
	}
	if err := u.checkQuota(ctx, at, p.need); err != nil {
		return err
	}
	uuid, err := u.send(ctx, at, p, client.NewBundle{
		Worksheet: sheet, Type: codalab.TypeDataset, Metadata: u.metadata, WaitForUpload: !u.isText && p.url == "",
	})
	if err != nil {
		return err
	}
	return u.printUUID(uuid)
}

// checkCommandLine fails for combinations of arguments and flags that have no meaning; nothing is
// read or sent before.
func (u *upload) checkCommandLine() error {
	urls := 0
	for _, p := range u.paths {
		if isURL(p) {
			urls++
		}
	}
	switch {
	case u.link:
		return u.checkLink()
	case u.isText && len(u.paths) > 0:
		return refusef("Upload does not support mixing content strings and paths.")
	case !u.isText && len(u.paths) == 0:
		return u.nothing()
	case urls > 0 && urls < len(u.paths):
		return refusef("URLs and local files cannot be uploaded in the same bundle.")
	case urls > 1:
		return refusef("Only one URL can be specified at a time.")
	case u.git && urls == 0:
		return refusef("--git needs the URL of a repository, which the server clones.")
	case urls > 0 && (len(u.exclude) > 0 || u.ignore != ""):
		return refusef("The server fetches a URL as it is: -x and -i cannot be used.")
	case slices.Contains(u.paths, standardInput) && len(u.paths) > 1:
		return refusef("Standard input (-) cannot be uploaded together with paths.")
	}
	return nil
}

// nothing refuses an upload without a path. -x takes all words up to the next flag, as in CodaLab's own cl, so the path may
// be among them.
func (u *upload) nothing() error {
	n := len(u.exclude)
	if n == 0 {
		return refusef("Nothing to upload.")
	}
	example := "<path> -x " + codalab.JoinWords(u.exclude)
	if n > 1 {
		example = codalab.JoinWords(u.exclude[n-1:]) + " -x " + codalab.JoinWords(u.exclude[:n-1])
	}
	return refusef("Nothing to upload: -x takes all words after it as patterns. Name the path first: cl upload %s", example)
}

// isURL reports whether a path is a URL (codalab/lib/path_util.py: path_is_url).
func isURL(p string) bool {
	return slices.ContainsFunc([]string{"http://", "https://", "ftp://"}, func(scheme string) bool { return strings.HasPrefix(p, scheme) })
}

// prepareMetadata completes and checks the metadata, and returns the worksheet that gets the
// bundle.
func (u *upload) prepareMetadata(ctx context.Context, worksheet string) (*workspace, string, error) {
	name := u.metadata.String("name")
	if name == "" {
		name = u.defaultName()
	}
	if !u.pack {
		name = strings.TrimSuffix(name, archiveExt(name))
	}
	u.metadata["name"] = name
	if len(u.paths) == 1 && isURL(u.paths[0]) && u.metadata.String("source_url") == "" {
		u.metadata["source_url"] = codalab.PythonStr([]any{u.paths[0]})
	}
	if err := u.checkNew(ctx, codalab.TypeDataset, u.metadata, u.edit); err != nil {
		return nil, "", err
	}
	return u.openWorksheet(ctx, worksheet)
}

// checkQuota fails if the upload exceeds the disk quota, before anything is sent. The server checks
// again, because unpacked archives and concurrent uploads count, too.
func (u *upload) checkQuota(ctx context.Context, at *workspace, need int64) error {
	if need <= 0 {
		return nil
	}
	user, err := at.User(ctx)
	if err != nil {
		return err
	}
	if user.Account == nil {
		return nil // the server checks, too
	}
	if left := user.DiskQuota - user.DiskUsed; need > left {
		return refusef(codalab.OverDiskQuota+" The upload needs %s, but only %s of your disk quota of %s are left. Remove bundles that you do not need, or ask for a larger quota.",
			codalab.FormatSize(need), codalab.FormatSize(max(0, left)), codalab.FormatSize(user.DiskQuota))
	}
	return nil
}

// defaultName joins the names of the uploaded files; that of a text is "_", as there are none (codalab/lib/metadata_defaults.py:
// get_default_name).
func (u *upload) defaultName() string {
	var names []string
	for _, p := range u.paths {
		if p == standardInput {
			p = "stdin"
		}
		names = append(names, filepath.Base(p))
	}
	return defaultName(codalab.TypeDataset, strings.Join(names, "-"))
}

// archiveExt is the ending of an archive's name, or empty (codalab/lib/zip_util.py:
// ARCHIVE_EXTS).
func archiveExt(name string) string {
	for _, ext := range []string{".tar.gz", ".tgz", ".tar.bz2", ".zip", ".gz", ".bz2"} {
		if strings.HasSuffix(name, ext) {
			return ext
		}
	}
	return ""
}
