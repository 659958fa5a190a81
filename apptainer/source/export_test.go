package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// ReadBlob reads a blob of an image from an offset on, as a pull does.
func ReadBlob(ctx context.Context, src Source, img Image, blob v1.Descriptor, offset int64) ([]byte, error) {
	image, err := src.Open(ctx, img)
	if err != nil {
		return nil, WrapError(ctx, img.Reference, err)
	}
	defer image.Close()
	body, err := image.Blob(ctx, blob, offset)
	if err != nil {
		return nil, WrapError(ctx, img.Reference, err)
	}
	data, err := io.ReadAll(body)
	return data, WrapError(ctx, img.Reference, errors.Join(err, body.Close()))
}

// ReadLayersAtOnce reads all layers of an image, each in a goroutine.
func ReadLayersAtOnce(ctx context.Context, src Source, img Image) error {
	image, err := src.Open(ctx, img)
	if err != nil {
		return WrapError(ctx, img.Reference, err)
	}
	defer image.Close()
	var group errgroup.Group
	for _, l := range image.Manifest.Layers {
		group.Go(func() error {
			body, err := image.Blob(ctx, l, 0)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, body)
			return errors.Join(err, body.Close())
		})
	}
	return WrapError(ctx, img.Reference, group.Wait())
}

// Layers returns an image's layers as its manifest describes them.
func Layers(ctx context.Context, src Source, img Image) ([]v1.Descriptor, error) {
	image, err := src.Open(ctx, img)
	if err != nil {
		return nil, WrapError(ctx, img.Reference, err)
	}
	defer image.Close()
	return image.Manifest.Layers, nil
}

// ReadPacked reads n bytes of a compressed archive at an offset, of which other readings have unpacked
// some bytes before.
func ReadPacked(at, before int64, n int) error {
	var read atomic.Int64
	read.Store(before)
	_, err := io.ReadFull(&tarFile{Reader: bytes.NewReader(make([]byte, n)), read: &read, at: at}, make([]byte, n))
	return err
}

// FindLogin returns the user name of the login for a repository, and its owner.
func FindLogin(ctx context.Context, l Logins, host, repository string) (user, owner string, err error) {
	found, err := l.findLogin(ctx, host, repository)
	if err != nil || found == nil {
		return "", "", err
	}
	return found.config.Username + found.config.IdentityToken, found.owner, nil
}

// ReadManifest reads a manifest as if a registry had sent it, and its list.
func ReadManifest(ctx context.Context, raw []byte) error {
	m, err := newManifest(raw, "", "")
	if err != nil {
		return err
	}
	_, err = (&platformPicker{store: &localStore{manifestOf: func(context.Context, string) (manifest, error) { return m, nil }}, want: parsePlatform("amd64")}).pick(ctx, m)
	return err
}
