package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/shellrc"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

const completionHelp = `Complete commands, flags, fields and the names of your bundles, worksheets and
groups in your shell.

  cl completion --install     for the shell in SHELL: it says which file it writes
  cl completion --uninstall   take that back

--install puts a few marked lines into the shell's own file, once; new shells then
complete cl. The subcommands print the script of a shell, for another place.`

// completionInstall is cl completion without a subcommand.
type completionInstall struct {
	*cli
	shell             string
	install, withdraw bool
}

// completionShells are the shells for which completion can be installed.
func completionShells() []string { return []string{"bash", "fish", "powershell", "zsh"} }

// installsCompletion gives cobra's command completion the flags that install it.
func (c *cli) installsCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		panic("cobra has no command completion")
	}
	o := &completionInstall{cli: c}
	cmd.Short, cmd.Long = "Complete cl in your shell", completionHelp
	cmd.Flags().BoolVar(&o.install, "install", false, "write what the shell needs into its own file")
	cmd.Flags().BoolVar(&o.withdraw, "uninstall", false, "remove what --install has written")
	cmd.Flags().StringVar(&o.shell, "shell", "", "the `shell`: bash, fish, powershell or zsh; default: that of SHELL")
	_ = cmd.RegisterFlagCompletionFunc("shell", completeWords(completionShells()...)) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.install && o.withdraw:
			return refusef("--install and --uninstall exclude each other")
		case o.install || o.withdraw:
			return o.run()
		case o.shell != "":
			return refusef("--shell goes with --install and --uninstall; cl completion %s prints the script", o.shell)
		}
		return cmd.Help()
	}
}

// completionPlace is a shell's file, and what completion needs in it. If own is set, the file is for cl alone.
type completionPlace struct {
	shell, path string
	block       shellrc.Block
	own         bool
}

// completionPlace returns the place of a shell; empty means that of SHELL.
func (c *cli) completionPlace(shell string) (completionPlace, error) {
	if shell == "" {
		shell = strings.TrimSuffix(filepath.Base(c.Getenv("SHELL")), ".exe")
		if runtime.GOOS == "windows" && c.Getenv("SHELL") == "" {
			shell = "powershell"
		}
		if !slices.Contains(completionShells(), shell) {
			return completionPlace{}, refusef("SHELL names none of %s: --shell names one", strings.Join(completionShells(), ", "))
		}
	}
	home := c.Getenv("HOME")
	if home == "" {
		home = c.Getenv("USERPROFILE")
	}
	if home == "" {
		return completionPlace{}, refusef("HOME is not set: cl does not know where your shell's file is")
	}
	config := c.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	p := completionPlace{shell: shell, block: shellrc.Block{Name: "completion of cl", Undo: "cl completion --uninstall --shell " + shell + " removes these lines."}}
	switch shell {
	case "bash":
		p.path = filepath.Join(home, ".bashrc")
		p.block.Lines = "if command -v cl >/dev/null 2>&1; then eval \"$(cl completion bash)\"; fi\n"
	case "zsh":
		dir := c.Getenv("ZDOTDIR")
		if dir == "" {
			dir = home
		}
		p.path = filepath.Join(dir, ".zshrc")
		p.block.Lines = "if (( $+commands[cl] )); then\n" +
			"  (( $+functions[compdef] )) || { autoload -U compinit && compinit; }\n  eval \"$(cl completion zsh)\"\nfi\n"
	case "fish":
		p.path, p.own = filepath.Join(config, "fish", "completions", "cl.fish"), true
		p.block.Lines = "cl completion fish | source\n"
	case "powershell":
		p.path = filepath.Join(config, "powershell", "Microsoft.PowerShell_profile.ps1")
		if runtime.GOOS == "windows" {
			p.path = filepath.Join(home, "Documents", "PowerShell", "Microsoft.PowerShell_profile.ps1")
		}
		p.block.Lines = "if (Get-Command cl -CommandType Application -ErrorAction SilentlyContinue) { cl completion powershell | Out-String | Invoke-Expression }\n"
	default:
		return p, refusef("--shell: %q is none of %s", shell, strings.Join(completionShells(), ", "))
	}
	return p, nil
}

func (o *completionInstall) run() error {
	p, err := o.completionPlace(o.shell)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refusef("%s cannot be read: %v", p.path, err)
	}
	text := string(data)
	if o.withdraw {
		return o.remove(p, text)
	}
	next := p.block.In(text)
	if next == text {
		return o.printResult(p.view(false), "%s has the completion of cl already; cl completion --uninstall removes it.", p.path)
	}
	if err := p.mayChange("add these lines to it yourself:\n" + strings.TrimSuffix(p.block.Lines, "\n")); err != nil {
		return err
	}
	if err := p.write(next); err != nil {
		return err
	}
	return o.printResult(p.view(true), "New shells complete cl: %s has its lines now. cl completion --uninstall removes them.", p.path)
}

func (o *completionInstall) remove(p completionPlace, text string) error {
	rest, had := p.block.Without(text)
	if !had {
		return o.printResult(p.view(false), "%s has no completion of cl that cl has installed: nothing is removed.", p.path)
	}
	if err := p.mayChange("remove the lines of cl from it yourself"); err != nil {
		return err
	}
	var err error
	if p.own && rest == "" {
		err = os.Remove(p.path)
	} else {
		err = p.write(rest)
	}
	if err != nil {
		return refusef("%s cannot be changed: %v", p.path, err)
	}
	return o.printResult(p.view(true), "New shells no longer complete cl: its lines are removed from %s.", p.path)
}

// completionView is the output of cl completion --install and --uninstall, in JSON.
type completionView struct {
	Shell   string `json:"shell"`
	Path    string `json:"path"`
	Changed bool   `json:"changed"`
}

func (p completionPlace) view(changed bool) completionView {
	return completionView{p.shell, p.path, changed}
}

// mayChange refuses a file that something else keeps: a link, such as into a directory of dotfiles under version control, or a
// file of another user. instead says what to do then.
func (p completionPlace) mayChange(instead string) error {
	info, err := os.Lstat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return refusef("%s cannot be read: %v", p.path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(p.path) // empty if the link has gone
		return refusef("%s is a link to %s, which something else may keep: %s", p.path, to, instead)
	case !info.Mode().IsRegular():
		return refusef("%s is no plain file: %s", p.path, instead)
	case !ownedByMe(info):
		return refusef("%s belongs to another user: %s", p.path, instead)
	}
	return nil
}

// write replaces the file, and keeps its permissions.
func (p completionPlace) write(text string) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(p.path); err == nil {
		mode = info.Mode().Perm()
	}
	err := os.MkdirAll(filepath.Dir(p.path), 0o755)
	if err == nil {
		err = atomicfile.Write(p.path, []byte(text), mode)
	}
	if err != nil {
		return refusef("%s cannot be written: %v", p.path, err)
	}
	return nil
}

// completes reports whether a shell's file has the completion.
func (p completionPlace) completes() (bool, error) {
	data, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", p.path, err)
	}
	return p.block.Has(string(data)), nil
}
