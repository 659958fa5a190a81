package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
)

// The user of the image. It is a number, so that Kubernetes can see that it is not root (runAsNonRoot).
const (
	userID = 1000
	home   = "/home/codalab"
)

// base returns the files of the image but cl-worker.
func base(ctx context.Context, architecture string, packages []pkg) (tree, error) {
	t := tree{}
	for _, p := range packages {
		if err := t.unpack(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := t.prune(triplets()[architecture]); err != nil {
		return nil, err
	}
	files := map[string]file{
		"bin":        {kind: tar.TypeSymlink, mode: 0o777, target: "usr/bin"},
		"sbin":       {kind: tar.TypeSymlink, mode: 0o777, target: "usr/sbin"},
		"lib":        {kind: tar.TypeSymlink, mode: 0o777, target: "usr/lib"},
		"usr/bin/sh": {kind: tar.TypeSymlink, mode: 0o777, target: "dash"},
		"usr/sbin":   {kind: tar.TypeDir, mode: 0o755},
		"dev":        {kind: tar.TypeDir, mode: 0o755},
		"proc":       {kind: tar.TypeDir, mode: 0o755},
		"root":       {kind: tar.TypeDir, mode: 0o700},
		"run":        {kind: tar.TypeDir, mode: 0o755},
		"sys":        {kind: tar.TypeDir, mode: 0o755},
		"tmp":        {kind: tar.TypeDir, mode: 0o1777},
		"var/tmp":    {kind: tar.TypeDir, mode: 0o1777},
		// OpenShift gives a container any user, of the group root.
		home[1:]: {kind: tar.TypeDir, mode: 0o775, uid: userID},
		// Root is the user of a pod that has a user namespace. Its ids are no ids of the node.
		"etc/subuid":                        text("root:1:65535\n"),
		"etc/subgid":                        text("root:1:65535\n"),
		"etc/passwd":                        text("root:x:0:0:root:/root:/bin/sh\ncodalab:x:1000:1000:CodaLab worker:" + home + ":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
		"etc/group":                         text("root:x:0:\ncodalab:x:1000:\nnogroup:x:65534:\n"),
		"etc/ssl/certs/ca-certificates.crt": {kind: tar.TypeReg, mode: 0o644, content: t.certificates()},
		"etc/ld.so.conf":                    text("/usr/lib/" + triplets()[architecture] + "\n"), // a driver's hook runs the host's ldconfig
	}
	if slices.ContainsFunc(packages, func(p pkg) bool { return strings.HasPrefix(p.name, "libc6") }) && t.has("usr/lib64/") {
		files["lib64"] = file{kind: tar.TypeSymlink, mode: 0o777, target: "usr/lib64"}
	}
	for name, f := range files {
		if name == "usr/bin/sh" {
			delete(t, name) // newer packages of dash have it
		}
		if err := t.add(name, f); err != nil {
			return nil, err
		}
	}
	if len(files["etc/ssl/certs/ca-certificates.crt"].content) == 0 {
		return nil, fmt.Errorf("the package ca-certificates has no certificates")
	}
	return t, nil
}

func text(content string) file {
	return file{kind: tar.TypeReg, mode: 0o644, content: []byte(content)}
}

// has reports whether there are files below a directory.
func (t tree) has(dir string) bool {
	for name := range t {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// certificates returns the certificates of all authorities in one file, as update-ca-certificates(8) makes it, and
// removes the single files.
func (t tree) certificates() []byte {
	var names []string
	for name := range t {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		all.Write(bytes.TrimSpace(t[name].content))
		all.WriteByte('\n')
		delete(t, name)
	}
	return all.Bytes()
}
