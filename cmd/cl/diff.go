package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/compare"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const diffHelp = `Show what differs between two bundles, runs above all: command, inputs,
settings of a sweep, image, requests and tags, state and exit code, and the
files of the results.

  cl diff train train-2              all of it
  cl diff --stat train train-2       without the insides of files
  cl diff train/stats.json train-2/stats.json
                                     two files, or two directories
  cl diff home-ann//best https://other::best
                                     also of other worksheets and servers

Values in .json, .jsonl, .ndjson and .csv files stand side by side (of rows, those
of the last one), and other small texts as diff -u shows them; --text shows all
files so. Files of one size are read and compared up to 16 MiB each and 256 MiB
in all; cl diff names the others, and --whole compares them, too.

Times, use of resources, and the GPUs and the versions of the programs that runs
ran on are shown, and make no difference. The exit codes are those of diff: 0 the
same, 1 different, 2 trouble: an error, or files that were not compared while all
others are the same; 3 if the server does not answer.`

// diffOptions are the flags of cl diff.
type diffOptions struct {
	stat, text, whole bool
	// outcome leaves out the fields with what a run was asked to do.
	outcome bool
}

// diffCommand has no counterpart in CodaLab's own cl.
func (c *cli) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff <bundle>[/<path>] <bundle>[/<path>]", Short: "Show what differs between two bundles", Long: diffHelp,
		Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeBundles,
	}
	var o diffOptions
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	cmd.Flags().BoolVar(&o.stat, "stat", false, "name the files that differ, without their insides")
	cmd.Flags().BoolVar(&o.text, "text", false, "show the lines also of files with values")
	cmd.Flags().BoolVar(&o.whole, "whole", false, "read and compare all files, however large")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.stat && o.text { // pflag's own groups end with 1, which means that the bundles differ
			return program.Usage(refusef("--stat and --text are two forms; choose one"))
		}
		return diffExit(cmd.Context(), c.diff(cmd.Context(), *worksheet, args[0], args[1], o))
	}
	return cmd
}

// errDiffer ends cl diff if the bundles differ, without a text.
var errDiffer = &program.Error{Code: 1}

// diffExit gives trouble the exit code of diff(1), because 1 means that the bundles differ.
func diffExit(ctx context.Context, err error) error {
	if program.Code(ctx, err) == program.ExitFailure && !errors.Is(err, errDiffer) {
		return &program.Error{Code: 2, Err: err}
	}
	return err
}

// diffSide is one of the two that cl diff compares.
type diffSide struct {
	at     *workspace
	bundle client.BundleInfo
	// target is its place in the contents, with the path that the user gave.
	target codalab.Target
	// base is target where its contents lie; another one for results that are those of a dependency.
	base codalab.Target
	// tree is nil if there are no contents.
	tree *codalab.TargetInfo
}

// name names the side, or a file of it.
func (s diffSide) name(path string) string {
	name := fmt.Sprintf("%s(%s)", s.bundle.Metadata.String("name"), shortUUID(s.bundle.UUID))
	return joinPath(joinPath(name, s.target.Subpath), path)
}

// file returns the place of a file in the contents.
func (s diffSide) file(path string) codalab.Target {
	return codalab.Target{BundleUUID: s.base.BundleUUID, Subpath: joinPath(s.base.Subpath, path)}
}

// joinPath joins two paths, each of which may be empty.
func joinPath(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "/" + b
}

// diffLevels are the levels of directories that cl diff looks at.
const diffLevels = 64

// diffSide reads one side.
func (c *cli) diffSide(ctx context.Context, worksheet, spec string) (diffSide, error) {
	at, target, err := c.target(ctx, worksheet, spec)
	if err != nil {
		return diffSide{}, err
	}
	found, err := at.Bundles(ctx, "", []string{target.BundleUUID})
	if err != nil {
		return diffSide{}, err
	}
	s := diffSide{at: at, bundle: found[0], target: target, base: target}
	if s.bundle.Type == codalab.TypePrivate {
		return s, refusef("%s is a bundle that you may not read", spec)
	}
	if !s.bundle.State.Final() {
		c.warn("%s has not ended: it is %s, and its files are those of now.", s.name(""), s.bundle.State)
	}
	info, err := at.ContentsInfo(ctx, target, diffLevels)
	switch {
	case isNotFound(err) && target.Subpath == "":
		return s, nil
	case err != nil:
		return s, err
	case info.Resolved != nil:
		s.base = *info.Resolved
	}
	s.tree = &info
	return s, nil
}

// diff compares two bundles, or files in them.
func (c *cli) diff(ctx context.Context, worksheet, specA, specB string, o diffOptions) error {
	a, err := c.diffSide(ctx, worksheet, specA)
	if err != nil {
		return err
	}
	b, err := c.diffSide(ctx, worksheet, specB)
	if err != nil {
		return err
	}
	r := diffReport{A: diffEnd{a.bundle.UUID, a.bundle.Metadata.String("name"), a.target.Subpath}, B: diffEnd{b.bundle.UUID, b.bundle.Metadata.String("name"), b.target.Subpath}}
	r.Fields, r.Measured, r.Files, r.NotCompared = []compare.Value{}, []compare.Value{}, []fileDiff{}, []unreadFile{}
	bundles := a.target.Subpath == "" && b.target.Subpath == ""
	if bundles {
		r.Fields, r.Measured = diffFields(a.bundle, b.bundle)
	}
	if o.outcome {
		r.Fields = slices.DeleteFunc(r.Fields, func(v compare.Value) bool {
			return !slices.Contains([]string{"docker_image", "state", "exitcode", "failure_message"}, v.Name)
		})
	}
	reader := diffReader{a: a, b: b, o: o, named: !bundles}
	if err := reader.read(ctx, &r); err != nil {
		return err
	}
	r.Equal = len(r.Fields)+len(r.Files)+len(r.NotCompared) == 0
	if c.asJSON {
		err = c.printJSON(r)
	} else {
		err = c.printDiff(r, a, b, o)
	}
	switch {
	case err != nil:
		return err
	case len(r.Fields)+len(r.Files) > 0:
		return errDiffer
	case len(r.NotCompared) > 0:
		advice := ""
		if slices.ContainsFunc(r.NotCompared, func(f unreadFile) bool { return f.Why == whyLarge }) {
			advice = ", and --whole reads the large ones"
		}
		return refusef("Nothing else differs; %s not compared%s", notCompared(len(r.NotCompared)), advice)
	}
	return nil
}

// notCompared counts files.
func notCompared(n int) string {
	if n == 1 {
		return "1 file was"
	}
	return fmt.Sprintf("%d files were", n)
}

// diffEnd is one side in JSON.
type diffEnd struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
}

// diffReport is the difference of two bundles, in JSON.
type diffReport struct {
	A     diffEnd `json:"a"`
	B     diffEnd `json:"b"`
	Equal bool    `json:"equal"`
	// Fields are those that differ.
	Fields []compare.Value `json:"fields"`
	// Measured are times, uses of resources and the platforms of runs, which make no difference.
	Measured []compare.Value `json:"measured"`
	Files    []fileDiff      `json:"files"`
	// SameFiles is the number of files and links that are the same.
	SameFiles int `json:"same_files"`
	// NotCompared are files of one size whose contents were not read.
	NotCompared []unreadFile `json:"not_compared"`
}

// fileDiff is an entry of the results that differs.
type fileDiff struct {
	Path string `json:"path"`
	// Change is added, removed or changed.
	Change string         `json:"change"`
	A      *compare.Entry `json:"a"`
	B      *compare.Entry `json:"b"`
	// Values are those that differ, of a file of values.
	Values []compare.Value `json:"values,omitempty"`
	// Diff are the lines that differ.
	Diff string `json:"diff,omitempty"`
	// Unshown is the reason if neither is there.
	Unshown string `json:"unshown,omitempty"`
}

// whyLarge is the reason for which a file is not compared without --whole.
const whyLarge = "large"

// unreadFile is a file that was not compared.
type unreadFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Why  string `json:"why"`
}
