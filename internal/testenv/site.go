package testenv

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// RealSite is the site of scripts/site: machines with kernels of their own.
type RealSite struct {
	// Script is the path of scripts/site.
	Script string
	// SSH are the words before USER@MACHINE and a script for its shell, Controller those
	// before a program that root runs on the controller.
	SSH, Controller []string
	// Root is the directory with the sources of the machines. Its subdirectory root is
	// their root file system.
	Root string
}

// Site returns the site whose variables `scripts/site env` prints.
func Site(tb testing.TB) RealSite {
	tb.Helper()
	need(tb, realSite, nil)
	s := RealSite{
		Script: os.Getenv("SITE"), SSH: strings.Fields(os.Getenv("SITE_SSH")),
		Controller: strings.Fields(os.Getenv("SITE_CTL")), Root: os.Getenv("SITE_ROOT"),
	}
	if s.Script == "" || s.Root == "" || len(s.SSH) == 0 || len(s.Controller) == 0 {
		need(tb, realSite, errors.New(`scripts/site up, and eval "$(scripts/site env)"`))
	}
	return s
}
