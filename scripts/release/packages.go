package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// packages writes the packages for Linux on an architecture: each part, in each format.
func (r *release) packages(arch string) error {
	for part := range parts() {
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(part, format, arch); err != nil {
				return fmt.Errorf("make %s of %s for %s: %w", format, part, arch, err)
			}
		}
	}
	return nil
}

func (r *release) writePackage(part, format, arch string) error {
	dir := filepath.Join(r.source, "scripts", "release")
	values := map[string]string{
		"SOURCE": r.source, "STAGE": r.stage, "PLATFORM": platform{"linux", arch}.String(),
		"VERSION": r.version, "ARCH": arch,
	}
	config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(dir, part+".yaml"), func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.time
	nfpm.WithDefaults(info)
	for _, c := range info.Contents {
		switch { // whatever the umask of the check-out
		case c.Type == files.TypeDir:
		case strings.HasPrefix(c.Destination, "/usr/bin/"), strings.HasSuffix(c.Destination, ".sh"):
			c.FileInfo = &files.ContentFileInfo{Mode: 0o755}
		default:
			c.FileInfo = &files.ContentFileInfo{Mode: 0o644}
		}
	}
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		if *script != "" {
			*script = filepath.Join(dir, *script)
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, f), f.Close())
}
