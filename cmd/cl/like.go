package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/substitution"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// likeness is a run to make again, and the options of its command that change.
type likeness struct {
	run  string
	subs []string // NAME=VALUE
}

// likeFlags adds the flags of a run that is like another one.
func likeFlags(flags *pflag.FlagSet) *likeness {
	var l likeness
	flags.StringVar(&l.run, "like", "", "run again what the run `bundle` ran, with what else is given in place of its own")
	flags.StringArrayVar(&l.subs, "sub", nil, "with --like, change an option of the command: `name=value`; may be repeated")
	return &l
}

// check refuses flags that have no meaning together.
func (l *likeness) check() error {
	switch {
	case l.run == "" && len(l.subs) > 0:
		return refusef("--sub changes the command of another run, which --like names.")
	}
	names := map[string]bool{}
	for _, sub := range l.subs {
		name, _, ok := strings.Cut(sub, "=")
		switch {
		case !ok || name == "" || strings.HasPrefix(name, "-"):
			return refusef("--sub needs NAME=VALUE, such as --sub lr=0.3, not %q.", sub)
		case names[name]:
			return refusef("--sub %s is given twice.", name)
		}
		names[name] = true
	}
	return nil
}

// createLike makes a run like another one (cl run --like). given has the metadata of the command line, and resume adds
// what --resume asks for.
func (c *cli) createLike(
	ctx context.Context, worksheet string, l *likeness, words []string, given codalab.Metadata, resume func(codalab.Metadata), o runOptions,
) error {
	at, old, err := c.runLike(ctx, worksheet, l.run)
	if err != nil {
		return err
	}
	specs, typed := splitWords(words, old.Dependencies)
	targets, command, err := codalab.RunInputs(specs, typed)
	if err != nil {
		return err
	}
	switch {
	case typed == "":
		if command, err = c.substituted(l.subs, old.Bundle); err != nil {
			return err
		}
	case len(l.subs) > 0:
		return refusef("--sub changes the command of %s: give --sub or a new command, not both.", l.run)
	}
	if err := codalab.CheckCommand(command); err != nil {
		return refusef("%s", codalab.Sentence(err.Error()))
	}
	m := old.MetadataLike(given)
	resume(m)
	m.WithDefaults(codalab.TypeRun)
	if err := c.checkNew(ctx, codalab.TypeRun, m, o.edit); err != nil {
		return err
	}
	src, err := c.readSource(ctx, o.upload)
	if err != nil {
		return err
	}
	if src != nil {
		old.Dependencies = at.withoutUploads(ctx, old.Dependencies)
	}
	deps, err := c.replaced(ctx, at, old.Bundle, targets)
	if err == nil {
		err = src.checkKeys(keysOf(deps))
	}
	if err != nil {
		return err
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	sent, err := src.sent(ctx, at, sheet)
	if err != nil {
		return err
	}
	withTags(m, sent.tags)
	return c.startRun(ctx, at, client.NewBundle{
		Worksheet: sheet, Type: codalab.TypeRun, AfterSortKey: o.afterSortKey, Command: command, Metadata: m,
		Dependencies: append(deps, sent.deps...),
	}, o, sent.uuid)
}

// runLike returns the run that --like names, and its server.
func (c *cli) runLike(ctx context.Context, worksheet, spec string) (*workspace, client.BundleInfo, error) {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, []string{spec})
	if err != nil {
		return nil, client.BundleInfo{}, err
	}
	if len(uuids) != 1 {
		return nil, client.BundleInfo{}, refusef("--like needs one run; %s is %d bundles.", spec, len(uuids))
	}
	old, err := at.Bundle(ctx, uuids[0])
	if err == nil && old.Type != codalab.TypeRun {
		err = refusef("%s is a bundle of type %s: --like needs a run, and cl mimic makes other bundles again.", spec, old.Type)
	}
	return at, old, err
}

// splitWords separates the dependencies KEY:BUNDLE among the words after the flags from the command, which may be the last
// one. The last word is a dependency if it begins with a key of the run, or has a colon and no blank.
func splitWords(words []string, old []codalab.Dependency) (specs []string, command string) {
	if len(words) == 0 {
		return nil, ""
	}
	last := words[len(words)-1]
	key, target, keyed := strings.Cut(last, ":")
	known := slices.ContainsFunc(old, func(d codalab.Dependency) bool { return d.ChildPath == key })
	if keyed && target != "" && (known || !strings.ContainsAny(last, " \t\n")) {
		return words, ""
	}
	return words[:len(words)-1], last
}

// substituted returns the command of a run after each --sub, and prints it. A setting of a run in a sweep may also be a word
// of its command.
func (c *cli) substituted(subs []string, old codalab.Bundle) (string, error) {
	command := old.CommandText()
	for _, sub := range subs {
		name, value, _ := strings.Cut(sub, "=")
		changed, err := substitution.Option(command, name, value)
		if errors.Is(err, substitution.ErrNone) {
			for _, s := range old.Metadata.Settings() {
				if s.Name == name && s.Value != "" {
					changed, err = substitution.Word(command, s.Value, value)
				}
			}
		}
		if err != nil {
			return "", refusef("--sub %s: %s %s; give the new command as last word. The command is: %s", sub, name, err, command)
		}
		command = changed
	}
	if len(subs) > 0 {
		c.warn("%s", command)
	}
	return command, nil
}

// replaced returns the dependencies of a run with others in place of those that have their keys. Others with new keys come
// after them.
func (c *cli) replaced(ctx context.Context, at *workspace, old codalab.Bundle, targets []codalab.Input) ([]codalab.Dependency, error) {
	news, err := at.dependencies(ctx, targets)
	if err != nil {
		return nil, err
	}
	var all []codalab.Dependency
	var keys []codalab.Input
	for _, d := range old.Dependencies {
		all = append(all, codalab.Dependency{ChildPath: d.ChildPath, ParentUUID: d.ParentUUID, ParentPath: d.ParentPath})
		keys = append(keys, codalab.Input{Key: d.ChildPath})
	}
	var further []string
	for _, d := range news {
		if i := slices.IndexFunc(keys, func(k codalab.Input) bool { return k.Key == d.ChildPath }); i >= 0 {
			all[i] = d
			continue
		}
		all, keys, further = append(all, d), append(keys, codalab.Input{Key: d.ChildPath}), append(further, d.ChildPath)
	}
	if err := codalab.CheckKeys(keys); err != nil {
		return nil, err
	}
	if len(further) > 0 && len(old.Dependencies) > 0 {
		c.warn("cl: The dependencies of %s stay, and there are further ones: %s", bundleText(old), strings.Join(further, " "))
	}
	return all, nil
}
