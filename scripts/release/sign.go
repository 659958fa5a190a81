package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// signedFor is the namespace of the signature. A signature of the same key for another purpose, such as a commit's, is none
// of a release.
const signedFor = "cl-slurm-release"

// digests and signature are the files with the digests of a release and with their signature.
const (
	digests   = "SHA256SUMS"
	signature = digests + ".sig"
)

// sign signs the digests, and so all files of the release. docs/operators/start.md has the command that verifies them.
func (r *release) sign(ctx context.Context) error {
	if r.key == "" {
		fmt.Fprintln(os.Stderr, "release: it is not signed, so users cannot check who has built it: -sign-key FILE (make release SIGN_KEY=FILE) signs it")
		return nil
	}
	// -q asks for no confirmation; the signature replaces no other one, because the directory is new.
	if _, err := r.run(ctx, nil, "ssh-keygen", "-q", "-Y", "sign", "-n", signedFor, "-f", r.key, filepath.Join(r.out, digests)); err != nil {
		return fmt.Errorf("sign the release: %w", err)
	}
	fmt.Fprintln(os.Stderr, "release:", signature, "has the signature by", r.key)
	return nil
}
